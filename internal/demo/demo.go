// Package demo is a guided tour of the main job on real servers: a flaky target,
// two worker processes and a janitor process, a few thousand messages, and a worker killed in
// the middle. Its closing table is counted at the target.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// Options configures the tour. Backend is required; its schema must be up to date.
type Options struct {
	Backend  *app.Backend
	Binary   string    // the holdfast program to start as worker and janitor
	Messages int       // 0 means 2000
	Out      io.Writer // the story and the table
	Terminal bool      // Out can show a moving bar
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
	crew := &crew{o: o}
	defer crew.stop()

	o.say("A flaky target listens at %s.", t.url)
	for _, p := range []struct{ name, roles string }{{"janitor", "janitor"}, {"worker-1", "worker"}, {"worker-2", "worker"}} {
		if err := crew.start(ctx, p.name, p.roles); err != nil {
			return err
		}
	}
	o.say("Started two workers and a janitor, as processes of their own.")
	if err := crew.ready(ctx); err != nil {
		return err
	}

	began := time.Now()
	if err := o.enqueue(ctx, t.url); err != nil {
		return err
	}
	o.say("Enqueued %d messages in %s. Now they are delivered; worker-1 will be killed with kill -9 in the middle.",
		o.Messages, time.Since(began).Round(time.Millisecond))

	bar := o.bar()
	killed, err := o.watch(ctx, t, crew, bar)
	if err != nil {
		return err
	}
	facts := t.facts(o.Messages, killed, time.Since(began))
	if facts.counts, err = o.counts(ctx); err != nil {
		return err
	}
	facts.print(o.Out)
	crew.stop()
	o.next()
	return facts.check()
}

func (o Options) say(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

// enqueue stores the messages: most succeed at once or after a failure or two, one
// in a hundred never does, and one in two hundred is refused for good.
func (o Options) enqueue(ctx context.Context, url string) error {
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
			return err
		}
		tasks[i] = holdfast.NewTask{Type: "http", Lane: lane, Payload: payload, MaxAttempts: maxAttempts}
	}
	_, err := p.EnqueueMany(ctx, tasks)
	return err
}

// counts are the store's, of the tour's lane.
func (o Options) counts(ctx context.Context) (map[holdfast.State]int64, error) {
	return o.Backend.Store.Count(ctx, store.Filter{Lane: lane})
}

// watch shows progress until every task is final, and kills worker-1 when two fifths are
// delivered. It returns the moment of the kill.
func (o Options) watch(ctx context.Context, t *target, crew *crew, bar *progressbar.ProgressBar) (killed time.Time, err error) {
	const limit = 3 * time.Minute
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
			crew.kill("worker-1")
			_ = bar.Clear()
			o.say("kill -9 of worker-1 after %d deliveries.", done)
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

// next says what to try, with the servers the tour used.
func (o Options) next() {
	o.say("\nWhat never could be delivered is dead and waits for you. With the servers of the tour running")
	o.say("(make servers-up; . .servers/env), look at it:\n")
	for _, line := range []string{
		"bin/holdfast dead list --lane " + lane,
		"bin/holdfast task get <ID>            # one of them, with its attempts",
		"bin/holdfast task attempts <ID>       # what the target answered each time",
		"bin/holdfast dead retry <ID>          # send it again",
		"bin/holdfast serve                    # a worker, a janitor and health endpoints in one process",
		"bin/holdfast --help",
	} {
		o.say("  %s", line)
	}
}

// environment is what the started processes get: this one's, the servers in use, and the
// tour's settings.
func (o Options) environment() []string {
	c := o.Backend.Config
	return append(os.Environ(),
		"HOLDFAST_DATABASE_URL="+c.Database.URL, "HOLDFAST_DATABASE_SCHEMA="+c.Database.Schema,
		"HOLDFAST_AMQP_URLS="+strings.Join(c.AMQP.URLs, ","), "HOLDFAST_AMQP_PREFIX="+c.AMQP.Prefix,
		"HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8",
		"HOLDFAST_TYPES_HTTP_RETRY_STRATEGY=exponential",
		"HOLDFAST_TYPES_HTTP_RETRY_BASE=500ms",
		"HOLDFAST_TYPES_HTTP_RETRY_FACTOR=2",
		"HOLDFAST_WORKER_LANES="+lane,
	)
}
