package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// tasksOf returns the newest tasks of a type.
func (w *fixture) tasksOf(q *queue.Client, taskType string) (tasks []holdfast.Task) {
	w.Helper()
	page, err := queue.Backend(q).Store.List(w.Context(), store.Filter{Type: taskType, Limit: 100})
	w.must(err)
	return page.Tasks
}

func TestASuccessStoresOutputAndNextTasks(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		type shipment struct{ Order string }
		w.must(queue.Handle(q, "charge", func(ctx context.Context, task holdfast.Task, order string) error {
			if err := errors.Join(queue.Output(ctx, map[string]string{"charged": order}),
				queue.Next(ctx, "ship", shipment{order}, queue.Unique("ship/"+order))); err != nil {
				return err
			}
			if task.Failures == 0 {
				return errors.New("failed after the effects")
			}
			return queue.Output(ctx, map[string]string{"charged again": order})
		}))
		shipped := make(chan string, 10)
		w.must(queue.Handle(q, "ship", func(_ context.Context, _ holdfast.Task, s shipment) error {
			shipped <- s.Order
			return nil
		}))
		id := w.enqueue(q, "charge", "o7", queue.MaxAttempts(2))
		if _, err := queue.OutputOf[string](w.Context(), q, id); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("the output of a ready task: %v", err)
		}
		w.run(q)
		task := w.wait(q, id)
		output, err := queue.OutputOf[map[string]string](w.Context(), q, id)
		w.must(err)
		if task.State != holdfast.Done || task.Failures != 1 || output["charged again"] != "o7" || len(output) != 1 {
			t.Errorf("task %+v, output %v", task, output)
		}
		select {
		case order := <-shipped:
			if order != "o7" {
				t.Errorf("shipped %q", order)
			}
		case <-time.After(slow.Patience()):
			t.Fatal("the next task has not run")
		}
		if ships := w.tasksOf(q, "ship"); len(ships) != 1 || ships[0].Unique != "ship/o7" {
			t.Errorf("next tasks: %+v", ships)
		}
		if _, err := queue.OutputOf[int](w.Context(), q, id); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("the output as another type: %v", err)
		}
	})
}

func TestNextTasksOfAFailureAreNotStored(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		w.must(queue.Handle(q, "parent", func(ctx context.Context, _ holdfast.Task, _ any) error {
			if err := errors.Join(queue.Output(ctx, 1), queue.Next(ctx, "child", nil)); err != nil {
				return err
			}
			return holdfast.Permanent(errors.New("hopeless"))
		}))
		id := w.enqueue(q, "parent", nil)
		w.run(q)
		if task := w.wait(q, id); task.State != holdfast.Dead || task.LastError != "hopeless" {
			t.Errorf("task %+v", task)
		}
		_, err := queue.OutputOf[int](w.Context(), q, id)
		if children := w.tasksOf(q, "child"); len(children) != 0 || !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("children %v, output %v", children, err)
		}
	})
}

func TestStepsThatSucceededDoNotRunAgain(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		var mu sync.Mutex
		var ran []string
		step := func(ctx context.Context, name string, fails bool) (string, error) {
			return queue.Once(ctx, name, func() (string, error) {
				mu.Lock()
				defer mu.Unlock()
				if ran = append(ran, name); fails {
					return "", errors.New(name + " failed")
				}
				return "value of " + name, nil
			})
		}
		w.must(queue.Handle(q, "order", func(ctx context.Context, task holdfast.Task, _ any) error {
			charge, err := step(ctx, "charge", false)
			if err != nil || charge != "value of charge" {
				return fmt.Errorf("charge %q: %w", charge, err)
			}
			if _, err := step(ctx, "ship", task.Failures == 0); err != nil {
				return err
			}
			again, err := step(ctx, "charge", true)
			if err == nil {
				err = queue.Output(ctx, again)
			}
			return err
		}))
		id := w.enqueue(q, "order", nil)
		w.run(q)
		if task := w.wait(q, id); task.State != holdfast.Done || task.LastError != "ship failed" {
			t.Errorf("task %+v", task)
		}
		if output, err := queue.OutputOf[string](w.Context(), q, id); err != nil || output != "value of charge" {
			t.Errorf("output %q, %v", output, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"charge", "ship", "ship"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
}

// A step whose value no attempt could store ends the task. Its effect is not repeated, or has not happened at all.
func TestAStepWhoseValueCannotBeStoredIsNotRepeated(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open(queue.Set("producer.max_payload", "100"))
		var effects atomic.Int32
		step := func(ctx context.Context, size int) error {
			_, err := queue.Once(ctx, "more", func() (string, error) {
				effects.Add(1)
				return strings.Repeat("x", size), nil
			})
			return err
		}
		w.must(queue.Handle(q, "large", func(ctx context.Context, _ holdfast.Task, _ any) error { return step(ctx, 200) }))
		w.must(queue.Handle(q, "many", func(ctx context.Context, task holdfast.Task, _ any) error {
			values := make([]store.Datum, 1000)
			for i := range values {
				values[i] = store.Datum{Name: store.StepData(fmt.Sprint(i)), Value: json.RawMessage("1")}
			}
			by := store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker}
			return errors.Join(queue.Backend(q).Store.SaveData(ctx, by, values), step(ctx, 1))
		}))
		w.run(q)
		for taskType, want := range map[string]struct {
			effects int32
			says    string
		}{"large": {1, "its effect has happened"}, "many": {0, "at most 1000 values"}} {
			effects.Store(0)
			task := w.wait(q, w.enqueue(q, taskType, nil, queue.MaxAttempts(5)))
			if n := effects.Load(); task.State != holdfast.Dead || task.Attempt != 1 || n != want.effects || !strings.Contains(task.LastError, want.says) {
				t.Errorf("%s: %d effects, want %d: task %+v", taskType, n, want.effects, task)
			}
		}
	})
}

func TestOneGoroutineAtATimeRunsAStep(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		var effects atomic.Int32
		w.must(queue.Handle(q, "order", func(ctx context.Context, _ holdfast.Task, _ any) error {
			var started, ended sync.WaitGroup
			var values [4]int32
			var errs [4]error
			started.Add(len(values))
			for i := range values {
				ended.Go(func() {
					started.Done()
					values[i], errs[i] = queue.Once(ctx, "charge", func() (int32, error) {
						started.Wait()
						return effects.Add(1), nil
					})
				})
			}
			ended.Wait()
			if values != [4]int32{1, 1, 1, 1} {
				errs[0] = errors.Join(errs[0], fmt.Errorf("the values are %v", values))
			}
			return errors.Join(errs[:]...)
		}))
		id := w.enqueue(q, "order", nil, queue.MaxAttempts(1))
		w.run(q)
		if task := w.wait(q, id); task.State != holdfast.Done || effects.Load() != 1 {
			t.Errorf("%d effects: task %+v", effects.Load(), task)
		}
	})
}

func TestNoStepRunsAfterTheEndOfItsContext(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		running, late := make(chan struct{}), make(chan error, 1)
		var effects atomic.Int32
		step := func(ctx context.Context, name string) (int32, error) {
			return queue.Once(ctx, name, func() (int32, error) { return effects.Add(1), nil })
		}
		w.must(queue.Handle(q, "order", func(ctx context.Context, _ holdfast.Task, _ any) error {
			_, err := step(ctx, "charge") // reads the values, so that the next calls do not
			close(running)
			<-ctx.Done()
			cached, cachedErr := step(ctx, "charge")
			if err = errors.Join(err, cachedErr); err == nil && cached != 1 {
				err = fmt.Errorf("the stored value is %d", cached)
			}
			if err == nil {
				_, err = step(ctx, "ship")
			}
			late <- err
			return err
		}))
		id := w.enqueue(q, "order", nil)
		w.run(q)
		select {
		case <-running:
		case <-time.After(slow.Patience()):
			t.Fatal("the task does not run")
		}
		_, err := q.Cancel(w.Context(), id)
		w.must(err)
		select {
		case err := <-late:
			if n := effects.Load(); !errors.Is(err, holdfast.ErrCancelled) || n != 1 {
				t.Errorf("%d effects, want 1: %v", n, err)
			}
		case <-time.After(slow.Patience()):
			t.Fatal("the context of the attempt has not ended")
		}
	})
}

func TestANewAttemptContinuesFromTheCheckpoint(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		var from []int
		w.must(queue.Handle(q, "import", func(ctx context.Context, task holdfast.Task, _ any) error {
			line := 0
			found, err := queue.Load(ctx, &line)
			if err != nil || found != (task.Failures > 0) {
				return holdfast.Permanent(fmt.Errorf("found %v: %w", found, err))
			}
			for from = append(from, line); line < 3*task.Failures+3; line++ {
				if err := queue.Save(ctx, line+1); err != nil {
					return err
				}
			}
			if task.Failures < 2 {
				return errors.New("broken")
			}
			return nil
		}))
		id := w.enqueue(q, "import", nil)
		w.run(q)
		if task := w.wait(q, id); task.State != holdfast.Done || !slices.Equal(from, []int{0, 3, 6}) {
			t.Errorf("task %+v, attempts began at the lines %v", task, from)
		}
	})
}

func TestProgressIsReadWhileTheAttemptRuns(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		seen := make(chan struct{})
		w.must(queue.Handle(q, "export", func(ctx context.Context, _ holdfast.Task, _ any) error {
			for i := range 101 {
				queue.Progress(ctx, i, fmt.Sprintf("row %d", i))
			}
			select {
			case <-seen:
			case <-ctx.Done():
			}
			queue.Progress(ctx, 150, strings.Repeat("é", 1000))
			return nil
		}))
		id := w.enqueue(q, "export", nil)
		w.run(q)
		progress := func() (p store.Progress) {
			values, err := queue.Backend(q).Store.TaskData(w.Context(), []holdfast.TaskID{id}, store.ProgressData)
			w.must(err)
			if len(values) > 0 {
				w.must(json.Unmarshal(values[0].Value, &p))
			}
			return p
		}
		w.eventually("the last progress is stored", func() bool { return progress() == store.Progress{Percent: 100, Note: "row 100"} })
		close(seen)
		w.wait(q, id)
		if p := progress(); p.Percent != 100 || len(p.Note) != 1000 {
			t.Errorf("progress at the end: %d %%, %d bytes", p.Percent, len(p.Note))
		}
		queue.Progress(w.Context(), 1, "without an attempt") // does nothing
	})
}

func TestEffectsAreChecked(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open(queue.Set("producer.max_payload", "100"))
		long := strings.Repeat("x", 200)
		type anyFunc = func(ctx context.Context) error
		wrong := map[string]anyFunc{
			"output":       func(ctx context.Context) error { return queue.Output(ctx, long) },
			"channel":      func(ctx context.Context) error { return queue.Output(ctx, make(chan int)) },
			"next type":    func(ctx context.Context) error { return queue.Next(ctx, "no type!", nil) },
			"next payload": func(ctx context.Context) error { return queue.Next(ctx, "next", long) },
			"next option":  func(ctx context.Context) error { return queue.Next(ctx, "next", nil, queue.MaxAttempts(0)) },
			"checkpoint":   func(ctx context.Context) error { return queue.Save(ctx, long) },
			"step": func(ctx context.Context) error {
				_, err := queue.Once(ctx, "a step", func() (int, error) { return 1, nil })
				return err
			},
			"transaction": func(ctx context.Context) error { return queue.CompleteTx(ctx, nil) },
			"1,001 tasks": func(ctx context.Context) error {
				for range 1000 {
					if err := queue.Next(ctx, "next", nil); err != nil {
						return fmt.Errorf("too early: %v", err)
					}
				}
				return queue.Next(ctx, "next", nil)
			},
		}
		for name, call := range wrong {
			if err := call(w.Context()); !errors.Is(err, holdfast.ErrInvalid) && name != "1,001 tasks" {
				t.Errorf("%s without an attempt: %v", name, err)
			}
		}
		var problems []string
		w.must(queue.Handle(q, "checks", func(ctx context.Context, _ holdfast.Task, _ any) error {
			for name, call := range wrong {
				if err := call(ctx); !errors.Is(err, holdfast.ErrInvalid) {
					problems = append(problems, fmt.Sprintf("%s: %v", name, err))
				}
			}
			return holdfast.Permanent(errors.New("the end"))
		}))
		id := w.enqueue(q, "checks", nil)
		w.run(q)
		w.wait(q, id)
		if len(problems) > 0 {
			t.Errorf("accepted or another error: %q", problems)
		}
	})
}

func TestASuccessCommitsWithTheTransactionOfTheHandler(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		db := w.database()
		_, err := db.ExecContext(w.Context(), "create table "+w.table("orders")+" (id text primary key, state text)")
		w.must(err)
		var late atomic.Value
		w.must(queue.Handle(q, "pay", func(ctx context.Context, task holdfast.Task, how string) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, "insert into "+w.table("orders")+" (id, state) values ('"+how+"', 'paid')"); err != nil {
				return err
			}
			if err := errors.Join(queue.Output(ctx, how), queue.Next(ctx, "invoice", how)); err != nil {
				return err
			}
			if err := queue.CompleteTx(ctx, tx); err != nil {
				return err
			}
			if err := errors.Join(queue.Output(ctx, 1), queue.Save(ctx, 1)); !errors.Is(err, holdfast.ErrConflict) {
				late.Store(fmt.Sprint(err))
			}
			switch how {
			case "forgets":
				return nil
			case "fails":
				return errors.New("after CompleteTx")
			case "fails after the commit":
				return errors.Join(tx.Commit(), errors.New("too late"))
			}
			return tx.Commit()
		}, queue.MaxAttempts(2), queue.Delays(time.Millisecond)))
		w.must(queue.Handle(q, "invoice", func(context.Context, holdfast.Task, string) error { return nil }))
		w.run(q)
		for how, want := range map[string]struct {
			state holdfast.State
			class string
		}{
			"commits": {holdfast.Done, ""}, "forgets": {holdfast.Dead, "uncommitted"}, "fails": {holdfast.Dead, "error"},
			"fails after the commit": {holdfast.Done, ""},
		} {
			id := w.enqueue(q, "pay", how)
			task := w.wait(q, id)
			var rows int
			w.must(db.QueryRowContext(w.Context(), "select count(*) from "+w.table("orders")+" where id = '"+how+"'").Scan(&rows))
			done := want.state == holdfast.Done
			output, err := queue.OutputOf[string](w.Context(), q, id)
			attempts, attemptsErr := q.Attempts(w.Context(), id)
			w.must(attemptsErr)
			class := ""
			if len(attempts) > 0 {
				class = attempts[len(attempts)-1].Class
			}
			if task.State != want.state || (rows == 1) != done || (err == nil && output == how) != done || class != want.class {
				t.Errorf("%s: %s, %d rows, output %q, %v, class %q, want %s with %q", how, task.State, rows, output, err, class, want.state, want.class)
			}
		}
		if problem := late.Load(); problem != nil {
			t.Errorf("effects after CompleteTx: %v", problem)
		}
		w.eventually("the two next tasks run", func() bool {
			invoices := w.tasksOf(q, "invoice")
			return len(invoices) == 2 && invoices[0].State == holdfast.Done && invoices[1].State == holdfast.Done
		})
	})
}

// On a file, no other transaction can write while that of a handler is open. The worker keeps its lease for that time.
func TestALongTransactionOnAFileDelaysTheOthers(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	db := w.database()
	_, err := db.ExecContext(w.Context(), "create table orders (id text)")
	w.must(err)
	others := make(chan struct{}, 10)
	w.must(queue.Handle(q, "slow", func(ctx context.Context, _ holdfast.Task, _ any) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "insert into orders (id) values ('a')"); err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := queue.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}))
	w.must(queue.Handle(q, "other", func(context.Context, holdfast.Task, any) error {
		others <- struct{}{}
		return nil
	}))
	slowTask, other := w.enqueue(q, "slow", nil), w.enqueue(q, "other", nil, queue.In(time.Second))
	w.run(q)
	for _, id := range []holdfast.TaskID{slowTask, other} {
		if task := w.wait(q, id); task.State != holdfast.Done || task.Attempt != 1 {
			t.Errorf("task %+v", task)
		}
	}
}

// eventually waits until holds returns true.
func (w *fixture) eventually(what string, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(slow.Patience())
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			w.Fatalf("timeout while waiting: %s", what)
		}
	}
}

// table returns the name of a table of the program.
func (w *fixture) table(name string) string {
	for _, variable := range w.environment {
		if schema, ok := strings.CutPrefix(variable, "HOLDFAST_DATABASE_SCHEMA="); ok {
			return schema + "." + name
		}
	}
	return name
}
