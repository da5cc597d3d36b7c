package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
)

// enqueueCommand is the command enqueue.
type enqueueCommand struct{ *tool }

func (t enqueueCommand) command() *cli.Command {
	return &cli.Command{
		Name:  "enqueue",
		Usage: "store one task, or many with --jsonl",
		Description: `Prints the id of the task. From then on it will be done, or dead, whatever crashes. If RabbitMQ is
away, or no process serves the file, the task is stored and runs later. A warning says if no live worker
has a handler for the type.

A --unique key that is taken is no error, whatever the state of the task that has it: the id of that task
is printed, and -o json says "duplicate": true and its "state". A dead task runs again only after
"holdfast task retry".

The payload of type http names a request: url, method, headers, body, timeout, secret_ref. It
is checked before it is stored.

With --jsonl each line of a file is one task, with the keys type, payload, lane, delay, at,
max_attempts and unique. The flags of those names are for the lines that have no such key.
Lines that are wrong are reported with their number, the others go in; the exit code is then 5, or 2 if
every line was wrong. A line whose unique key an open transaction holds is reported in the same way, and can be sent
again later. -o json and -o jsonl print {"line","id","duplicate"} for each task. Should a
server fail half-way, lines with a unique key can simply be sent again.

Example:
  holdfast enqueue --type http --payload '{"url":"https://example.com/hook"}' --delay 5m
  zcat tasks.jsonl.gz | holdfast enqueue --jsonl - --type mail`,
		Flags: []cli.Flag{
			outputFlag(),
			&cli.StringFlag{Name: "type", Usage: "`TYPE` of the task: chooses the handler; http is built in"},
			&cli.StringFlag{Name: "lane", Usage: "`LANE` to wait in; default that of the type"},
			&cli.StringFlag{Name: "payload", Usage: "input of the handler, as `JSON`, @FILE or - for stdin; default null"},
			&cli.StringFlag{Name: "delay", Usage: "run no earlier than `DURATION` from now, for example 90s"},
			&cli.StringFlag{Name: "at", Usage: "run no earlier than `TIME`: 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z; without a zone, the time here"},
			&cli.IntFlag{Name: "max-attempts", Usage: "the task is dead after `N` failures; default that of the type"},
			&cli.StringFlag{Name: "unique", Usage: "store nothing if a task with the same `KEY` is kept"},
			&cli.StringFlag{Name: "jsonl", Usage: "store one task for each line of `FILE`, or - for stdin"},
		},
		Action: t.do(t.enqueue),
	}
}

func (t enqueueCommand) enqueue(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	door, err := newDoor(cfg)
	if err != nil {
		return err
	}
	defer door.Close()
	task, err := t.taskFromFlags(c, cfg.Producer.MaxPayload)
	if err != nil {
		return err
	}
	if c.IsSet("jsonl") {
		return t.lines(ctx, c, cfg, door, task)
	}
	if task.Type == "" {
		return usageOf(commandName(c), "a task needs a --type")
	}
	if err := door.check(task); err != nil {
		return err
	}
	return t.opened(ctx, cfg, daemon.Open, func(b *app.Backend) error {
		t.warnIfAway(ctx, b)
		p := b.Producer(nil)
		defer t.finish(b, p)
		result, err := p.Enqueue(ctx, task)
		if err != nil {
			return err
		}
		stored := struct {
			ID        holdfast.TaskID `json:"id"`
			Duplicate bool            `json:"duplicate"`
			State     holdfast.State  `json:"state,omitempty"` // of the task that has the unique key
		}{ID: result.ID, Duplicate: result.Duplicate}
		if result.Duplicate {
			stored.State = t.standsInTheWay(ctx, b, result.ID)
		} else {
			t.warnIfUnhandled(ctx, b, task.Type)
		}
		return t.one(c, stored, result.ID.String())
	})
}

// warnIfUnhandled warns of types that no live worker has a handler for. It says nothing while no worker is live, or if
// one of them does not name its types.
func (t enqueueCommand) warnIfUnhandled(ctx context.Context, b *app.Backend, types ...string) {
	runs, err := b.Store.Runs(ctx, false)
	if err != nil || len(runs) == 0 || slices.ContainsFunc(runs, func(r store.Run) bool { return r.Types == nil }) {
		return // the tasks are stored: this is only a hint
	}
	var handled []string
	for _, run := range runs {
		handled = append(handled, run.Types...)
	}
	for _, name := range types {
		if !slices.Contains(handled, name) {
			t.say("warning: no live worker handles the type %s: its tasks wait until one does%s", name, didYouMean(name, handled))
		}
	}
}

// standsInTheWay says which task has the unique key, and what to do if that task will not run. It returns its state, and
// "" if it cannot be read.
func (t enqueueCommand) standsInTheWay(ctx context.Context, b *app.Backend, id holdfast.TaskID) holdfast.State {
	task, err := b.Store.Task(ctx, id)
	if err != nil {
		t.sayError(fmt.Sprintf("nothing was stored: task %s has this unique key; its state is not known", id), err)
		return ""
	}
	t.say("nothing was stored: task %s has this unique key; its state is %s", id, task.State)
	if task.State == holdfast.Dead || task.State == holdfast.Cancelled {
		fmt.Fprintf(t.stderr, "to run it again: holdfast task retry %s\n", id)
	}
	return task.State
}

// warnIfAway waits for the broker, so that the tickets go out at once if they can. What is
// enqueued without it is safe, and late.
func (t enqueueCommand) warnIfAway(ctx context.Context, b *app.Backend) {
	err := b.Ping(ctx, brokerPatience)
	if err == nil || ctx.Err() != nil {
		return
	}
	if _, embedded := b.Embedded(); embedded {
		t.sayError("warning: tasks are stored, but wait", err)
	} else {
		t.sayError("warning: tasks are stored, but run only when RabbitMQ is back", err)
	}
}

// finish ends the producer. RabbitMQ reports an alarm only after a publish, so finish warns of it.
func (t enqueueCommand) finish(b *app.Backend, p *producer.Producer) {
	_ = p.Close() // it returns no error
	if why := b.Broker.Health().Blocked; why != "" {
		t.say("warning: tasks are stored, but run only when RabbitMQ takes messages again: %s", why)
	}
}

// door checks tasks before they are stored, without any server.
type door struct {
	*webhook.Handler
	maxPayload int
}

func newDoor(cfg configs.Config) (*door, error) {
	deliver, err := daemon.NewWebhook(cfg, version)
	return &door{deliver, cfg.Producer.MaxPayload}, err
}

func (d *door) check(task holdfast.NewTask) error {
	if err := task.Validate(d.maxPayload); err != nil {
		return err
	}
	if task.Type == webhook.Type {
		return d.Validate(task.Payload)
	}
	return nil
}

// taskFromFlags reads what the flags say about a task. It may still be incomplete.
func (t enqueueCommand) taskFromFlags(c *cli.Context, maxPayload int) (holdfast.NewTask, error) {
	task := holdfast.NewTask{
		Type: c.String("type"), Lane: c.String("lane"), MaxAttempts: c.Int("max-attempts"), Unique: c.String("unique"),
	}
	for _, name := range []string{"type", "lane", "unique", "delay", "at", "jsonl"} {
		if c.IsSet(name) && c.String(name) == "" { // an empty variable in a script
			return task, usageOf(commandName(c), "--%s is empty", name)
		}
	}
	if c.IsSet("max-attempts") && task.MaxAttempts < 1 {
		return task, usageOf(commandName(c), "--max-attempts %d must be at least 1", task.MaxAttempts)
	}
	var err error
	if task.Delay, task.At, err = when(c.String("delay"), c.String("at")); err != nil {
		return task, usageOf(commandName(c), "--%w", err)
	}
	if c.IsSet("jsonl") {
		switch {
		case task.Unique != "":
			return task, usageOf(commandName(c), "--unique would make one task of all lines; give each line its own unique key")
		case c.String("jsonl") == "-" && c.String("payload") == "-":
			return task, usageOf(commandName(c), "--jsonl - and --payload - cannot both read stdin")
		}
	}
	if c.IsSet("payload") {
		task.Payload, err = t.payload(c.String("payload"), maxPayload)
	}
	return task, err
}

// payload reads the value of --payload: JSON itself, @file, or - for stdin.
func (t enqueueCommand) payload(text string, limit int) ([]byte, error) {
	from := t.stdin
	switch path, isFile := strings.CutPrefix(text, "@"); {
	case isFile:
		file, err := os.Open(path)
		if err != nil {
			return nil, usage("--payload: %w", err)
		}
		defer file.Close()
		from = file
	case text != "-":
		from = strings.NewReader(text)
	}
	data, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return nil, usage("--payload: %w", err)
	}
	rest, err := io.Copy(io.Discard, io.LimitReader(from, 1<<30)) // to name the size, within reason
	if err != nil {
		return nil, usage("--payload: %w", err)
	}
	if size := int64(len(data)) + rest; size > int64(limit) {
		return nil, usage("the payload has %d bytes, the limit is %d; keep large data elsewhere and send a reference", size, limit)
	}
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return nil, &failure{err: errors.New("the payload is empty; JSON for nothing is null"), code: exitUsage}
	}
	return data, nil
}
