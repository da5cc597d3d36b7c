package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// refusing is a target that does not answer, begins no import, or takes no record.
type refusing struct {
	app.Target
	answer, begin, stage error
}

func (r refusing) Incarnation(ctx context.Context) (string, error) {
	if r.answer != nil {
		return "", r.answer
	}
	return r.Target.Incarnation(ctx)
}

func (r refusing) BeginImport(ctx context.Context, i store.Import, last holdfast.TaskID, into store.Into) (store.Import, error) {
	if r.begin != nil {
		return store.Import{}, r.begin
	}
	return r.Target.BeginImport(ctx, i, last, into)
}

func (r refusing) Stage(ctx context.Context, transfer string, records []store.Record) error {
	if r.stage != nil {
		return r.stage
	}
	return r.Target.Stage(ctx, transfer, records)
}

// moverOf carries the file to the servers.
func moverOf(file, servers *world) *app.Mover {
	return &app.Mover{
		Source: file.Store.(app.Source), Target: servers.Store.(app.Target),
		From: "the file", To: "the servers", Settings: file.Config.Settings(),
	}
}

// mark returns the mark of a file.
func (w *world) mark(t *testing.T) store.Export {
	t.Helper()
	mark, err := w.Store.(app.Source).Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

// A target that refuses takes nothing from anybody: the mark goes again, but only if the same call has made it. What
// another call has copied is for a person to judge.
func TestMoveTakesAwayOnlyItsOwnMark(t *testing.T) {
	t.Parallel()
	servers, file := newSchema(t), newFile(t)
	file.fill(t, 20)
	mover := moverOf(file, servers)
	conflict := fmt.Errorf("%w: not now", holdfast.ErrConflict)
	for _, refusal := range []error{conflict, errFault} {
		mover.Target = refusing{Target: servers.Store.(app.Target), begin: refusal}
		if _, err := mover.Run(t.Context()); !errors.Is(err, refusal) || strings.Contains(err.Error(), "blocked") {
			t.Errorf("refused at once: %v", err)
		}
		if mark := file.mark(t); mark.Transfer != "" {
			t.Errorf("the mark is %+v", mark)
		}
	}
	mover.Target = refusing{Target: servers.Store.(app.Target), stage: errFault}
	if _, err := mover.Run(t.Context()); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	before := file.mark(t)
	mover.Target = refusing{Target: servers.Store.(app.Target), begin: conflict}
	if _, err := mover.Run(t.Context()); !errors.Is(err, conflict) || !strings.Contains(err.Error(), "stay blocked until this is run again, or with --undo") {
		t.Errorf("refused later: %v", err)
	}
	mover.Target = refusing{Target: servers.Store.(app.Target), answer: errFault}
	if _, err := mover.Run(t.Context()); !errors.Is(err, errFault) || !strings.Contains(err.Error(), "stay blocked until this is run again, or with --undo") {
		t.Errorf("no answer: %v", err)
	}
	if mark := file.mark(t); mark != before || mark.Transfer == "" {
		t.Errorf("the mark is %+v, was %+v", mark, before)
	}
}

// Who gives up before anything was copied leaves no mark.
func TestMoveInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	servers, file := newSchema(t), newFile(t)
	file.fill(t, 20)
	mover := moverOf(file, servers)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mover.Target = interrupting{servers.Store.(app.Target), cancel}
	if _, err := mover.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if mark := file.mark(t); mark.Transfer != "" {
		t.Errorf("the mark is %+v", mark)
	}
}

// interrupting is a target at which the caller loses patience.
type interrupting struct {
	app.Target
	cancel context.CancelFunc
}

func (i interrupting) BeginImport(ctx context.Context, begun store.Import, last holdfast.TaskID, into store.Into) (store.Import, error) {
	i.cancel()
	return i.Target.BeginImport(ctx, begun, last, into)
}

// Of a task that the servers cannot hold it is said how to be rid of it.
func TestMoveNamesATaskThatCannotBeHeld(t *testing.T) {
	t.Parallel()
	servers, file := newSchema(t), newFile(t)
	file.fill(t, 20)
	tasks, err := file.Store.List(t.Context(), store.Filter{Limit: 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		mover := moverOf(file, servers)
		mover.Target = refusing{Target: servers.Store.(app.Target), stage: &store.RecordError{Task: task.ID, Err: holdfast.ErrInvalid}}
		_, err := mover.Run(t.Context())
		cancel := fmt.Sprintf("holdfast task cancel %s, then", task.ID)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("task %s: ", task.ID)) || !strings.Contains(err.Error(), "janitor.keep_cancelled") ||
			strings.Contains(err.Error(), cancel) != (task.State == holdfast.Ready) {
			t.Errorf("a task that is %s: %v", task.State, err)
		}
	}
}

// What the file says counts, whatever the target says: an import that it has forgotten may be in a backup.
func TestMoveBackIsRefusedAfterTheEnd(t *testing.T) {
	t.Parallel()
	servers, file := newSchema(t), newFile(t)
	file.fill(t, 20)
	mover := moverOf(file, servers)
	if _, err := mover.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	servers.sql(t, "delete from "+servers.schema+".imports")
	if undone, err := mover.Undo(t.Context()); undone || !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "--target-lost") {
		t.Errorf("undone: %v, %v", undone, err)
	}
	if _, err := mover.Run(t.Context()); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "does not know of it") {
		t.Errorf("once more: %v", err)
	}
	if mark := file.mark(t); !mark.Finished() {
		t.Errorf("the mark is %+v", mark)
	}
}

// A file that another process serves is not even brought up to date: the other one may be older.
func TestMoveOwnsTheFileBeforeItMigratesIt(t *testing.T) {
	t.Parallel()
	servers, file := newSchema(t), newFile(t)
	if _, err := file.Store.MigrateDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	release, err := file.Store.(*sqlite.Store).Own()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	o := app.MoveOptions{From: file.databaseURL, To: servers.databaseURL, Config: servers.Config, Log: quiet()}
	if _, err := app.MoveAway(t.Context(), o); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("moved: %v", err)
	}
	if _, err := app.MoveRelease(t.Context(), o); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("released: %v", err)
	}
	status, err := file.Store.MigrationStatus(t.Context())
	if err != nil || status[len(status)-1].Applied {
		t.Errorf("the migrations are %+v, %v", status, err)
	}
}

// Ctrl-C in the middle of it: the command says what that means for the tasks.
func TestMoveInterruptedHalfWay(t *testing.T) {
	t.Parallel()
	servers, file := newSchema(t), newFile(t)
	file.fill(t, 20)
	db, err := sql.Open("postgres", servers.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lock, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback() }()
	if _, err := lock.Exec("lock table " + servers.schema + ".import_tasks"); err != nil {
		t.Fatal(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "migrate-backend", "--from", file.databaseURL, "--to", servers.databaseURL)
	var problems bytes.Buffer
	cmd.Env, cmd.Stderr = servers.environment(), &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waits := func() (n int) {
		const text = "select count(*) from pg_locks where relation = $1::regclass and not granted"
		if err := db.QueryRow(text, servers.schema+".import_tasks").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(30 * time.Second); waits() == 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is staged")
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(problems.String(), "stay blocked until this is run again, or with --undo") {
		t.Errorf("exit code %d: %s", code, problems.String())
	}
}
