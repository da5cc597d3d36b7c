package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

func (t batchCommands) startCommand() *cli.Command {
	return t.verb("start TYPE", "start a batch from the lines of a file, or from the input of a split",
		`A batch is many tasks with one end. With --jsonl, each line of the file is the payload of one subtask of the type.
The command checks all lines first. If a line is bad, it reports the line by number, and starts nothing unless
--skip-bad is given. The exit code is 5 in both cases. An empty file starts a batch that ends at once. If the command
ends before it has stored all lines, the batch stays open and waits: "batch get" shows "sealed": false. Nothing can
continue it, so end it with "holdfast batch cancel". Otherwise it stops after 24 hours.

With --input, the batch begins with one task of the type TYPE.split, which stores the subtasks. When all subtasks have
ended, a task of the type TYPE.reduce runs. A program has the handlers; see docs/batches.md.

When all other tasks have ended, the task of --then runs. If more subtasks fail than --allow-failed says, the batch
stops before that and waits for a person. If a batch with the --name has not ended, the command starts nothing, prints
that batch and succeeds.

Example:
  holdfast batch start http --jsonl requests.jsonl --name import-7 --allow-failed 1% --wait
  holdfast batch start reindex --input '{"category": 7}'`,
		changes(t.tool, openNewStore, t.start), outputFlag(), []cli.Flag{settings("allow-cidr", "webhook.allow_cidrs", "CIDR")})
}

// startBatch is the request of "batch start".
type startBatch struct {
	Type        string `arg:"0"`
	JSONL       string `json:"jsonl" flag:"FILE" doc:"Start a subtask for each line of the file; - for stdin."`
	SkipBad     bool   `json:"skip_bad" flag:"-" doc:"Leave out the bad lines of the file."`
	Input       string `json:"input" flag:"JSON" doc:"The payload of the split: JSON, @FILE, or - for stdin."`
	Queue       string `json:"queue" flag:"QUEUE" doc:"The queue of the subtasks, or of the split and the reduce; default the queue of the type."`
	Then        string `json:"then" flag:"TYPE" doc:"The type of a task that runs after all others."`
	ThenPayload string `json:"then_payload" flag:"JSON" doc:"The payload of that task: JSON, @FILE, or - for stdin."`
	surface.BatchSettings
	Wait bool `json:"wait" flag:"-" doc:"Wait until the batch ends, stops or is paused; the exit code is that of \"batch watch\"."`
	timeout
}

// Check returns an error if the request is invalid. It reads no file.
func (r startBatch) Check() error {
	stdin := 0
	for _, from := range []string{r.JSONL, r.Input, r.ThenPayload} {
		if from == "-" {
			stdin++
		}
	}
	switch {
	case (r.JSONL == "") == (r.Input == ""):
		return usage("give --jsonl or --input, and not both")
	case r.SkipBad && r.JSONL == "":
		return usage("--skip-bad needs --jsonl")
	case r.ThenPayload != "" && r.Then == "":
		return usage("--then-payload needs --then")
	case stdin > 1:
		return usage("only one flag can read stdin")
	}
	if r.Name != "" {
		if err := plan.CheckName(r.Name); err != nil {
			return err
		}
	}
	if _, err := (surface.NewBatch{Open: true, BatchSettings: r.BatchSettings}).Spec(); err != nil {
		return err
	}
	return r.check(r.Wait)
}

// batch returns the batch of the request.
func (t batchCommands) batch(r startBatch, maxPayload int) (to surface.NewBatch, err error) {
	to.BatchSettings = r.BatchSettings
	if r.Then != "" {
		to.Then = &surface.BatchTask{Type: r.Then}
		if r.ThenPayload != "" {
			if to.Then.Payload, err = t.input("then-payload", r.ThenPayload, maxPayload); err != nil {
				return to, err
			}
		}
	}
	if r.JSONL != "" {
		to.Open = true
		return to, nil
	}
	to.Type, to.Queue = r.Type, r.Queue
	to.Input, err = t.input("input", r.Input, maxPayload)
	return to, err
}

func (t batchCommands) start(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r startBatch) error {
	request, err := t.batch(r, b.Config.Producer.MaxPayload)
	if err != nil {
		return err
	}
	lines := &batchLines{t: t, b: b, task: holdfast.NewTask{Type: r.Type, Queue: r.Queue}, skipBad: r.SkipBad}
	if r.JSONL != "" {
		file, done, err := t.spooled(ctx, r.JSONL)
		if err != nil {
			return err
		}
		defer done()
		lines.file = file
		if err := lines.check(ctx); err != nil {
			return err
		}
	}
	form, started, isNew, err := surface.StartBatch(ctx, b, by, request)
	if err != nil {
		return err
	}
	if !isNew {
		t.say("nothing is started: batch %s has the name %s and has not ended", started.ID, r.Name)
		t.hint(nextCommand(form))
		if r.Wait {
			return t.await(ctx, c, b, started.ID, r.timeout)
		}
		return printRow(t.tool, c, form, t.columns()...)
	}
	if r.JSONL != "" {
		if form, err = lines.store(ctx, by, started.ID); err != nil {
			return unsealed(ctx, started.ID, err)
		}
	}
	t.sayStarted(ctx, b, form, r)
	if r.Wait {
		err = t.await(ctx, c, b, started.ID, r.timeout)
	} else {
		err = stored(printRow(t.tool, c, form, t.columns()...), "batch %s is started", started.ID)
	}
	if err == nil && lines.bad > 0 {
		return &failure{code: exitPartly}
	}
	return err
}

// sayStarted says that a batch is started, and warns if its tasks wait.
func (t batchCommands) sayStarted(ctx context.Context, b *app.Backend, form surface.Batch, r startBatch) {
	what := "a split"
	types := []string{r.Type + ".split", r.Type + ".reduce"}
	if r.JSONL != "" {
		what, types = plural(int(form.Total), "subtask"), []string{r.Type}
	}
	if r.Then != "" {
		types = append(types, r.Then)
	}
	t.say("batch %s is started with %s; to follow it: holdfast batch watch %[1]s", form.ID, what)
	t.warnIfUnhandled(ctx, b, types...)
	if workers, err := b.Store.Workers(ctx, false); err == nil && len(workers) == 0 { // the batch is stored, so an error does not matter
		t.say("warning: no worker is running, so the batch waits; start one with: holdfast serve")
	}
}

// unsealed adds to an error that a batch has not got all of its subtasks.
func unsealed(ctx context.Context, id holdfast.BatchID, err error) error {
	hint := fmt.Sprintf("batch %[1]s is open and lacks subtasks; to end it: holdfast batch cancel %[1]s", id)
	if ctx.Err() != nil {
		return interrupted(hint)
	}
	return &failure{err: fmt.Errorf("batch %s: %w", id, err), code: exitCode(err), hint: hint}
}

// spooled opens a file that can be read twice. It copies a pipe to a temporary file. The caller calls done at the end.
func (t *tool) spooled(ctx context.Context, path string) (file *os.File, done func(), err error) {
	from, done, err := t.openLines(path)
	if err != nil {
		return nil, nil, err
	}
	if file, ok := from.(*os.File); ok && path != "-" {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			return file, done, nil
		}
	}
	defer done()
	spool, err := os.CreateTemp("", "holdfast-batch-*.jsonl")
	if err != nil {
		return nil, nil, fmt.Errorf("--jsonl: %w", err)
	}
	remove := func() {
		spool.Close()
		_ = os.Remove(spool.Name()) // an error means that it is removed already
	}
	_ = os.Remove(spool.Name()) // where a system allows that, the file disappears even after a crash
	if _, err = io.Copy(spool, untilDone{ctx, from}); err != nil {
		remove()
		return nil, nil, fmt.Errorf("--jsonl: %w", err)
	}
	return spool, remove, nil
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// batchLines stores a subtask for each line of a file.
type batchLines struct {
	t       batchCommands
	b       *app.Backend
	file    *os.File
	task    holdfast.NewTask // without its payload
	skipBad bool

	good, bad int
}

// read returns the lines from the begin of the file.
func (l *batchLines) read(what string) (*taskLines, error) {
	_, err := l.file.Seek(0, io.SeekStart)
	return l.t.taskLines(l.file, l.b.Config.Producer.MaxPayload, what, l.parse), err
}

// parse returns the subtask of a line.
func (l *batchLines) parse(line []byte) (holdfast.NewTask, error) {
	task := l.task
	task.Payload = json.RawMessage(line)
	if !json.Valid(line) {
		return task, fmt.Errorf("the line is not valid JSON: %s", clipped(string(line), 60))
	}
	complete, err := l.b.CompleteTask(task)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, clipped(string(line), 60))
	}
	return complete, err
}

// check checks all lines, and reports the bad ones.
func (l *batchLines) check(ctx context.Context) error {
	lines, err := l.read("check")
	if err != nil {
		return err
	}
	for chunk, err := range lines.chunks(ctx) {
		if err != nil {
			return err
		}
		l.good += len(chunk.tasks)
	}
	lines.finishReport()
	switch l.bad = lines.bad; {
	case l.bad == 0:
		return nil
	case !l.skipBad:
		return &failure{err: fmt.Errorf("nothing is started: %s of %d", plural(l.bad, "bad line"), l.bad+l.good), code: exitPartly, hint: "to leave them out, add --skip-bad"}
	case l.good == 0:
		return &failure{err: errors.New("nothing is started: every line is bad"), code: exitPartly}
	}
	l.t.say("%s of %d left out", plural(l.bad, "bad line"), l.bad+l.good)
	return nil
}

// store stores the subtasks in pages and seals the batch.
func (l *batchLines) store(ctx context.Context, by store.Actor, id holdfast.BatchID) (surface.Batch, error) {
	lines, err := l.read("store")
	if err != nil {
		return surface.Batch{}, err
	}
	lines.reject = func(number int, err error) error {
		if l.skipBad {
			return nil
		}
		return fmt.Errorf("line %d has changed while the command was running: %w", number, err)
	}
	pages, stored := 0, 0
	for chunk, err := range lines.chunks(ctx) {
		if err == nil && len(chunk.tasks) > 0 {
			_, err = surface.PushBatch(ctx, l.b, id, pages, chunk.tasks)
		}
		if err != nil {
			return surface.Batch{}, err
		}
		pages, stored = pages+1, stored+len(chunk.tasks)
	}
	if stored != l.good {
		return surface.Batch{}, errors.New("the file has changed while the command was running")
	}
	_, sealed, err := l.b.SealBatch(ctx, by, id)
	if err != nil {
		return surface.Batch{}, err
	}
	return surface.BatchOf(sealed), nil
}
