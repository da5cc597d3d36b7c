// Package demo is a guided tour of the main job: a flaky target, a few thousand messages,
// and a process killed in the middle. On the embedded default that is the one process
// which does everything, started again at once; on servers it is one of two workers,
// beside a janitor. The closing table is counted at the target.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// Options configures the tour. Backend, Binary and Logs are required.
type Options struct {
	Backend  *app.Backend // its schema must be up to date
	Binary   string       // the holdfast program to start
	Logs     string       // a folder for the logs of what is started
	Messages int          // 0 means 2000
	Keep     bool         // leave a process serving at the end; for the embedded default
	Out      io.Writer    // the story and the table
	Terminal bool         // Out can show a moving bar
}

const (
	lane        = "demo"
	maxAttempts = 4
)

// Run gives the tour and returns an error if a message was lost or anything else was not as
// promised. It leaves the dead messages in the store for a look around.
func Run(ctx context.Context, o Options) error {
	if o.Messages == 0 {
		o.Messages = 2000
	}
	t, err := newTarget()
	if err != nil {
		return err
	}
	defer t.close()
	cast := o.cast()
	crew := &crew{o: o}
	defer crew.stop()

	o.say("A flaky target listens at %s.", t.url)
	for _, part := range cast.parts {
		if err := crew.start(ctx, part); err != nil {
			return err
		}
	}
	o.say("%s", cast.opening)
	if err := crew.ready(ctx); err != nil {
		return err
	}

	began := time.Now()
	ids, err := o.enqueue(ctx, t.url)
	if err != nil {
		return err
	}
	o.say("Enqueued %d messages in %s. Now they are delivered; %s will be killed with kill -9 in the middle.",
		o.Messages, time.Since(began).Round(time.Millisecond), cast.victim.name)

	killed, err := o.watch(ctx, t, crew, cast)
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
	crew.stop()
	if err := facts.check(); err != nil {
		return err
	}
	return o.next(ctx)
}

func (o Options) say(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

// enqueue stores the messages: most succeed at once or after a failure or two, one
// in a hundred never does, and one in two hundred is refused for good. It returns their ids in order.
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
		tasks[i] = holdfast.NewTask{Type: "http", Lane: lane, Payload: payload, MaxAttempts: maxAttempts}
	}
	results, err := p.EnqueueMany(ctx, tasks)
	ids := make([]holdfast.TaskID, len(results))
	for i, result := range results {
		ids[i] = result.ID
	}
	return ids, err
}

// crashed are the numbers of the messages of which an attempt ended with its process.
func (o Options) crashed(ctx context.Context, ids []holdfast.TaskID) (map[int]bool, error) {
	tasks, err := o.Backend.Store.TasksByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	crashes := make(map[holdfast.TaskID]bool)
	for _, task := range tasks {
		crashes[task.ID] = task.Crashes > 0
	}
	numbers := make(map[int]bool)
	for number, id := range ids {
		numbers[number] = crashes[id]
	}
	return numbers, nil
}

// counts are the store's, of the tour's lane.
func (o Options) counts(ctx context.Context) (map[holdfast.State]int64, error) {
	return o.Backend.Store.Count(ctx, store.Filter{Lane: lane})
}

// watch shows progress until every task is final, and kills the victim when two fifths are
// delivered. It returns the moment of the kill.
func (o Options) watch(ctx context.Context, t *target, crew *crew, cast cast) (killed time.Time, err error) {
	const limit = 3 * time.Minute
	bar := o.bar()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for shown := 0; ; shown++ {
		select {
		case <-ctx.Done():
			return killed, fmt.Errorf("not every message was settled within %s: %w", limit, context.Cause(ctx))
		case <-tick.C:
		}
		done := t.delivered()
		_ = bar.Set(done) // a bar that cannot be drawn is no reason to stop
		if killed.IsZero() && done >= o.Messages*2/5 {
			killed = time.Now()
			crew.kill(cast.victim)
			_ = bar.Clear()
			o.say("kill -9 of %s after %d deliveries.%s", cast.victim.name, done, cast.afterwards)
			if cast.revived {
				if err := crew.start(ctx, cast.victim); err != nil {
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
		if !o.Terminal && shown%10 == 0 {
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
