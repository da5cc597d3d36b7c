package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type enqueueCommand struct{ *tool }

func (t enqueueCommand) command() *cli.Command {
	return t.verb("enqueue", "store one task, or many with --jsonl",
		`Prints the id of the task. After that, the task survives every crash until it is done or dead. If RabbitMQ is
unavailable, or no process is serving the file, the task is stored and runs later. If no live worker has a handler for
the type, the command prints a warning.

If another task has the --unique key, the command stores nothing, prints the id of that task and succeeds. -o json then
has "duplicate": true and the "state" of that task. A dead task runs again only after "holdfast task retry". With
--unique-for, a task that was stored so long ago no longer has the key, and the store keeps the key of the new task for
that time, also if it deletes the task before. With --unique-while-open, a task that is done, dead or cancelled no longer
has the key.

With --ordered, the task starts only when all earlier ordered tasks with the same --key have ended. A task that is
retried or delayed makes the later ones wait. The setting after_death says what happens after a death. "holdfast key
list" shows the keys in which tasks wait.

With --topic, the task belongs to a stream, such as a customer or a site. While tasks of several topics wait, each topic
gets its share of the executors. "holdfast topic list" shows the topics.

The payload of the type http is a request with the keys url, method, headers, body, timeout and secret_ref. The command
checks it before it stores the task. An address that is not public needs the same --allow-cidr here and for "holdfast
serve".

If the environment variable TRACEPARENT has the context of a trace, and perhaps TRACESTATE, the tasks belong to the
trace.

With --jsonl, each line of a file is one task with the keys type, payload, queue, priority, delay, at, max_attempts,
unique, unique_for, unique_while_open, key, ordered, topic and tags. The flags set defaults for lines without the key.
The command reports bad lines by number and stores all others. The exit code is then 5, or 2 if every line is bad. If an
open transaction has the unique key of a line, or has stored ordered tasks of its key, the line is bad, and you can
enqueue it again later. -o json and -o jsonl print {"line","id","duplicate"} for each task, and the "state" of the task
that has the key of a duplicate. If a server fails before the end, you can safely enqueue lines with a unique key again.

Example:
  holdfast enqueue --type http --payload '{"url":"https://example.com/hook"}' --delay 5m
  zcat tasks.jsonl.gz | holdfast enqueue --jsonl - --type mail`,
		plain(t.enqueue), outputFlag(), requestFlags[surface.NewTask](), []cli.Flag{
			&cli.StringSliceFlag{Name: "tag", Usage: "find the task by this `TAG`; may be repeated"},
			&cli.StringFlag{Name: "payload", Usage: "input of the handler: `JSON`, @FILE, or - for stdin; default null"},
			&cli.StringFlag{Name: "jsonl", Usage: "store one task for each line of `FILE`; - for stdin"},
			settings("allow-cidr", "webhook.allow_cidrs", "CIDR"),
		})
}

func (t enqueueCommand) enqueue(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	checker, err := newChecker(cfg)
	if err != nil {
		return err
	}
	defer checker.Close()
	task, err := t.task(c, cfg.Producer.MaxPayload)
	if err != nil {
		return err
	}
	if c.IsSet("jsonl") {
		return t.lines(ctx, c, cfg, checker, task)
	}
	if task.Type == "" {
		return usageOf(commandName(c), "a task needs a --type")
	}
	if err := checker.check(task); err != nil {
		return err
	}
	return t.useBackend(ctx, cfg, daemon.Open, func(b *app.Backend) error {
		unavailable := t.awaitBroker(ctx, b)
		p := b.Producer(nil)
		defer t.finish(b, p)
		result, err := p.Enqueue(ctx, task)
		if err != nil {
			return err
		}
		shown := struct {
			ID        holdfast.TaskID `json:"id"`
			Duplicate bool            `json:"duplicate"`
			State     holdfast.State  `json:"state,omitempty"` // of the task that has the unique key; empty if it was deleted
		}(result)
		if result.Duplicate {
			t.reportDuplicate(result)
		} else {
			if unavailable != nil {
				t.warnUnavailable(b, "task stored", unavailable)
			}
			t.warnIfUnhandled(ctx, b, task.Type)
		}
		err = printText(t.tool, c, shown, result.ID.String())
		if result.Duplicate {
			return err
		}
		return stored(err, "task %s is stored", result.ID)
	})
}

// warnIfUnhandled prints a warning for each type without a handler in a live worker. It prints nothing if no worker
// is live, or if the types of a live worker are unknown.
func (t *tool) warnIfUnhandled(ctx context.Context, b *app.Backend, types ...string) {
	workers, err := b.Store.Workers(ctx, false)
	if err != nil || len(workers) == 0 || slices.ContainsFunc(workers, func(w store.Worker) bool { return w.Types == nil }) {
		return // the tasks are stored, so an error does not matter
	}
	var handled []string
	for _, worker := range workers {
		handled = append(handled, worker.Types...)
	}
	for _, name := range types {
		if !slices.Contains(handled, name) {
			t.say("warning: no live worker has a handler for type %s; its tasks wait%s", name, didYouMean(name, handled))
		}
	}
}

// reportDuplicate prints which task has the unique key, and how to retry that task if it is dead or cancelled.
func (t enqueueCommand) reportDuplicate(holder producer.Result) {
	if holder.State == "" {
		t.say("nothing was stored: this unique key is kept for task %s, which was deleted", holder.ID)
		return
	}
	t.say("nothing was stored: task %s has this unique key; its state is %s", holder.ID, holder.State)
	if holder.State == holdfast.Dead || holder.State == holdfast.Cancelled {
		fmt.Fprintf(t.stderr, "to run it again: holdfast task retry %s\n", holder.ID)
	}
}

// awaitBroker waits for the broker, so that the producer can publish tickets at once. It returns an error if the broker
// is unavailable. Tasks that are stored without the broker are safe, but run later.
func (t enqueueCommand) awaitBroker(ctx context.Context, b *app.Backend) error {
	err := b.Ping(ctx, brokerTimeout)
	if ctx.Err() != nil {
		return nil // the command was interrupted
	}
	return err
}

// finish closes the producer. It prints a warning if RabbitMQ has an alarm, which RabbitMQ reports only after a
// publish.
func (t enqueueCommand) finish(b *app.Backend, p *producer.Producer) {
	_ = p.Close() // always nil
	if why := b.Broker.Health().Blocked; why != "" {
		t.say("warning: tasks are stored, but run only when RabbitMQ takes messages again: %s", why)
	}
}

// checker validates tasks before they are stored. It needs no server.
type checker struct {
	*webhook.Handler
	maxPayload int
}

func newChecker(cfg configs.Config) (*checker, error) {
	deliver, err := daemon.NewWebhook(cfg, version)
	return &checker{deliver, cfg.Producer.MaxPayload}, err
}

func (k *checker) check(task holdfast.NewTask) error {
	if err := task.Validate(k.maxPayload); err != nil {
		return err
	}
	if task.Type == webhook.Type {
		return k.Validate(task.Payload)
	}
	return nil
}

// task returns the task that the flags describe. The task may be incomplete.
func (t enqueueCommand) task(c *cli.Context, maxPayload int) (task holdfast.NewTask, err error) {
	var r surface.NewTask
	if err := readRequest(c, &r); err != nil {
		return task, err
	}
	r.Tags = c.StringSlice("tag")
	if task, err = r.Task(holdfast.NewTask{}); err != nil {
		name, rest, _ := strings.Cut(err.Error(), " ") // the name of the member begins the text
		return task, usageOf(commandName(c), "--%s %s", strings.ReplaceAll(name, "_", "-"), rest)
	}
	switch lines := c.String("jsonl"); {
	case c.IsSet("jsonl") && lines == "":
		return task, usageOf(commandName(c), "--jsonl is empty")
	case lines == "" && task.Ordered && task.Key == "":
		return task, usageOf(commandName(c), "--ordered needs a --key, because the ordered tasks of a key start one after the other")
	case lines != "" && (task.Unique != "" || task.ReleasesKey()):
		return task, usageOf(commandName(c), "--unique cannot be used with --jsonl, nor can --unique-for and --unique-while-open; give each line a unique key of its own")
	case lines == "" && task.ReleasesKey() && task.Unique == "":
		return task, usageOf(commandName(c), "--unique-for and --unique-while-open need a --unique KEY")
	case lines == "-" && c.String("payload") == "-":
		return task, usageOf(commandName(c), "--jsonl - and --payload - cannot both read stdin")
	}
	if c.IsSet("payload") {
		task.Payload, err = t.input("payload", c.String("payload"), maxPayload)
	}
	task.Trace = t.trace()
	return task, err
}

// trace returns the trace context in the environment, or "" if it has none that is valid. A script must not fail because
// of a wrong context.
func (t enqueueCommand) trace() string {
	trace := t.variable("TRACEPARENT")
	if state := t.variable("TRACESTATE"); state != "" && holdfast.CheckTrace(trace+" "+state) == nil {
		return trace + " " + state
	}
	if holdfast.CheckTrace(trace) != nil {
		return ""
	}
	return trace
}
