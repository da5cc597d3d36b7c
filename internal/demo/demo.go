// Package demo delivers a few thousand messages to a flaky target and kills a process in the middle. On a file it kills
// the only process and starts it again at once. On servers it kills one of two workers. The table at the end shows what
// the target counted.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// Options configures the demo. Backend, Binary, Logs and Out are required.
type Options struct {
	Backend  *app.Backend // its schema must be up to date
	Binary   string       // path of the holdfast program
	Logs     string       // folder for the logs of the processes
	Messages int          // 0 means 2000
	Prune    bool         // on a file: leave a process running at the end
	Out      io.Writer    // receives the progress and the table
	Terminal bool         // Out can show a progress bar
}

const (
	queue       = "demo"
	maxAttempts = 4
)

// Run runs the demo. It returns an error if a message was lost or another promise was broken. The dead messages stay in
// the store, so that the user can inspect them.
func Run(ctx context.Context, o Options) error {
	o.Messages = cmp.Or(o.Messages, 2000)
	t, err := newTarget()
	if err != nil {
		return err
	}
	defer t.close()
	scenario := o.scenario()
	running := &processes{o: o}
	defer running.stop()

	o.say("A flaky target listens at %s.", t.url)
	for _, s := range scenario.processes {
		if _, err := running.start(ctx, s, false); err != nil {
			return err
		}
	}
	o.say("%s", scenario.startedText)
	for _, process := range running.all {
		if err := process.ready(ctx); err != nil {
			return err
		}
	}

	began := time.Now()
	ids, err := o.enqueue(ctx, t.url)
	if err != nil {
		return err
	}
	o.say("Enqueued %d messages in %s. In the middle of the deliveries, %s is killed with kill -9.",
		o.Messages, time.Since(began).Round(time.Millisecond), scenario.victim.name)

	killed, err := o.watch(ctx, t, running, scenario)
	if err != nil {
		return err
	}
	crashed, err := o.crashed(ctx, ids)
	if err != nil {
		return err
	}
	facts := t.facts(o.Messages, crashed, killed, time.Since(began))
	if facts.counts, err = o.counts(ctx); err != nil {
		return err
	}
	facts.print(o.Out)
	running.stop()
	if err := facts.check(); err != nil {
		return err
	}
	return o.printNext(ctx)
}

func (o Options) say(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

// enqueue stores the messages and returns their ids in order. Most messages succeed at the first attempt or after up to
// three failures. One in 100 fails at every attempt, and one in 200 is rejected.
func (o Options) enqueue(ctx context.Context, url string) ([]holdfast.TaskID, error) {
	p := o.Backend.Producer(nil)
	defer p.Close()
	tasks := make([]holdfast.NewTask, o.Messages)
	for i := range tasks {
		body := order{Number: i, TakesMS: 200 + i*37%400}
		switch {
		case i%200 == 7:
			body.Reject = true
		case i%100 == 3:
			body.Failures = maxAttempts
		case i%4 == 0:
			body.Failures = 1 + i%3
		}
		payload, err := json.Marshal(map[string]any{"url": url, "body": body})
		if err != nil {
			return nil, err
		}
		tasks[i] = holdfast.NewTask{Type: "http", Queue: queue, Payload: payload, MaxAttempts: maxAttempts}
	}
	results, err := p.EnqueueMany(ctx, tasks)
	ids := make([]holdfast.TaskID, len(results))
	for i, result := range results {
		ids[i] = result.ID
	}
	return ids, err
}

// crashed reports for each message number whether the store counted a crash of an attempt.
func (o Options) crashed(ctx context.Context, ids []holdfast.TaskID) (map[int]bool, error) {
	tasks, err := o.Backend.Store.TasksByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	numbers := make(map[int]bool)
	for _, task := range tasks {
		if task.Crashes > 0 {
			numbers[slices.Index(ids, task.ID)] = true
		}
	}
	return numbers, nil
}

// counts returns the number of tasks by state in the queue of the demo, as the store counts them.
func (o Options) counts(ctx context.Context) (map[holdfast.State]int64, error) {
	counts, err := o.Backend.Store.Count(ctx, store.Filter{Queue: queue})
	return counts.By, err
}

// watch prints progress until every task is final. It kills the victim when two fifths of the messages are delivered,
// and returns the time of the kill.
func (o Options) watch(ctx context.Context, t *target, running *processes, scenario scenario) (killed time.Time, err error) {
	const limit = 3 * time.Minute
	bar := o.bar()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return killed, fmt.Errorf("not every task was final within %s: %w", limit, context.Cause(ctx))
		case <-tick.C:
		}
		done := t.delivered()
		_ = bar.Set(done) // the demo does not depend on the bar
		if killed.IsZero() && done >= o.Messages*2/5 {
			killed = time.Now()
			running.kill(scenario.victim)
			_ = bar.Clear()
			o.say("Killed %s with kill -9 after %d deliveries.%s", scenario.victim.name, done, scenario.killedText)
			if scenario.restart {
				if _, err := running.start(ctx, scenario.victim, false); err != nil {
					return killed, err
				}
			}
		}
		counts, err := o.counts(ctx)
		if err != nil {
			return killed, err
		}
		if counts[holdfast.Ready]+counts[holdfast.Running] == 0 && !killed.IsZero() {
			_ = bar.Finish()
			return killed, nil
		}
		if !o.Terminal && round%10 == 0 {
			o.say("  %5d of %d delivered, %d waiting or retrying, %d running, %d dead",
				done, o.Messages, counts[holdfast.Ready], counts[holdfast.Running], counts[holdfast.Dead])
		}
	}
}

func (o Options) bar() *progressbar.ProgressBar {
	out := o.Out
	if !o.Terminal {
		out = io.Discard
	}
	return progressbar.NewOptions(o.Messages, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("delivered"),
		progressbar.OptionShowCount(), progressbar.OptionSetWidth(40), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(out) }))
}
