package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	dice "math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// The command is killed with kill -9 again and again, at moments nobody chose, and started again until it gets through.
func TestMoveSurvivesKills(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	kills, resumed := 0, 0
	for round := range 2 {
		servers, file := newSchema(t), newFile(t)
		file.fill(t, 6000)
		before := file.taskCount(t)
		for limit := 300 * time.Millisecond; ; limit += 120 * time.Millisecond {
			cmd := exec.Command(path, "migrate-backend", "--from", file.databaseURL, "--to", servers.databaseURL)
			cmd.Env = servers.environment()
			var problems strings.Builder
			cmd.Stderr = &problems
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			killer := time.AfterFunc(limit/2+dice.N(limit/2), func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			killer.Stop()
			if err == nil {
				break
			}
			if cmd.ProcessState.Exited() {
				t.Fatalf("round %d: %v: %s", round, err, problems.String())
			}
			kills++
			if mark, err := file.Store.(app.Source).Export(t.Context()); err == nil && mark.Transfer != "" {
				resumed++
			}
			if there := servers.taskCount(t); there != 0 && there != before {
				t.Errorf("after a kill there are %d of %d tasks", there, before)
			}
		}
		if there := servers.taskCount(t); there != before {
			t.Errorf("%d of %d tasks were carried", there, before)
		}
		if _, problems, code := servers.migrateBackend(t, file); code != 0 || !strings.Contains(problems, "already") {
			t.Errorf("once more: exit code %d: %s", code, problems)
		}
		file.sameRecords(t, servers)
	}
	t.Logf("%d kills, %d of them after the file had been marked", kills, resumed)
}

// stepTasks are more than go in one batch.
const stepTasks = 1100

// The same with every step failing once, before it has done anything and after it has done all, in the
// moment in which its answer is lost. From each of these places the move can be finished, and before the tasks are
// committed also be taken back.
func TestMoveGoesOnFromEveryStep(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"BeginExport", "BeginImport", "Stage 1", "Stage 2", "Staged", "CommitImport", "FinishExport"} {
		for _, moment := range []string{"before", "after"} {
			for _, then := range []string{"finished", "undone"} {
				t.Run(step+" "+moment+" "+then, func(t *testing.T) {
					t.Parallel()
					servers, file := newSchema(t), newFile(t)
					file.fill(t, stepTasks)
					testFailingStep(t, servers, file, step, moment == "after", then == "undone")
				})
			}
		}
	}
}

// newSchema is a world on the servers that has no broker, and needs none.
func newSchema(t *testing.T) *world {
	t.Helper()
	databaseURL, amqpURL := servers(t)
	id := "e2e_" + strings.ToLower(rand.Text()[:16])
	w := &world{databaseURL: databaseURL, amqpURL: amqpURL, schema: id, prefix: "test." + id}
	cfg := w.config(t, databaseURL, amqpURL)
	if _, err := app.Migrate(t.Context(), cfg, quiet()); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.Backend, err = app.OpenStore(t.Context(), cfg, logger(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.sql(t, "drop schema if exists "+id+" cascade")
		_ = w.Close()
	})
	return w
}

// saysWhatIsBlocked checks what the error of a step says of the tasks.
func saysWhatIsBlocked(t *testing.T, err error, step string, marked bool) {
	t.Helper()
	text := err.Error()
	if step == "FinishExport" {
		if !strings.Contains(text, "the tasks ARE at the servers") || strings.Contains(text, "--undo") {
			t.Errorf("the first run: %v", err)
		}
	} else if strings.Contains(text, "the tasks of the file stay blocked until this is run again, or with --undo") != marked {
		t.Errorf("the first run: %v", err)
	}
}

func testFailingStep(t *testing.T, servers, file *world, step string, late, undo bool) {
	source, target := file.Store.(app.Source), servers.Store.(app.Target)
	fault := &fault{step: step, late: late}
	mover := &app.Mover{
		Source: &faultySource{source, fault}, Target: &faultyTarget{Target: target, fault: fault},
		From: "the file", To: "the servers", Settings: file.Config.Settings(),
	}
	_, err := mover.Run(t.Context())
	if !errors.Is(err, errFault) {
		t.Fatalf("the first run: %v", err)
	}
	// Before anything was copied it is as if nobody had tried.
	marked := step != "BeginExport" && step != "BeginImport"
	saysWhatIsBlocked(t, err, step, marked)
	committed := step == "FinishExport" || step == "CommitImport" && late
	want := int64(0)
	if committed {
		want = stepTasks
	}
	if n := servers.taskCount(t); n != want {
		t.Errorf("after the fault the servers have %d tasks, want %d", n, want)
	}
	if open, err := target.OpenImports(t.Context()); err != nil || len(open) > 0 && !marked {
		t.Errorf("after the fault the servers expect %+v, %v", open, err)
	}
	_, err = source.Insert(t.Context(), []holdfast.NewTask{{Type: "fill", Lane: "default", MaxAttempts: 1}}, 0)
	if errors.Is(err, holdfast.ErrConflict) != marked {
		t.Errorf("after the fault the file answers: %v", err)
	}
	if undo {
		undone, err := mover.Undo(t.Context())
		switch {
		case committed && !errors.Is(err, holdfast.ErrConflict):
			t.Errorf("undone after the end: %v", err)
		case !committed && (err != nil || undone != marked):
			t.Errorf("undone: %v, %v", undone, err)
		}
		if committed {
			return
		}
		if n := servers.taskCount(t); n != 0 {
			t.Errorf("after undoing it the servers have %d tasks", n)
		}
		file.enqueue(t, 1, holdfast.NewTask{Type: "fill"})
	}
	done, err := mover.Run(t.Context())
	if err != nil || done.Already != committed {
		t.Fatalf("the second run: %+v, %v", done, err)
	}
	if got, want := servers.taskCount(t), file.taskCount(t); got != want {
		t.Errorf("%d of %d tasks were carried", got, want)
	}
	file.sameRecords(t, servers)
	if done, err := mover.Run(t.Context()); err != nil || !done.Already {
		t.Errorf("the third run: %+v, %v", done, err)
	}
}

// forgetful loses one task of each batch.
type forgetful struct{ app.Target }

func (f forgetful) Stage(ctx context.Context, transfer string, records []store.Record) error {
	return f.Target.Stage(ctx, transfer, slices.Delete(slices.Clone(records), 3, 4))
}

// What was not staged is noticed before anything is committed.
func TestMoveNoticesWhatIsMissing(t *testing.T) {
	t.Parallel()
	servers, file := newSchema(t), newFile(t)
	file.fill(t, stepTasks)
	mover := &app.Mover{
		Source: file.Store.(app.Source), Target: forgetful{servers.Store.(app.Target)},
		From: "the file", To: "the servers", Settings: file.Config.Settings(),
	}
	for range 2 {
		_, err := mover.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "the file holds 990 ready tasks, but 989 were staged") || !strings.Contains(err.Error(), "--undo") {
			t.Fatal(err)
		}
	}
	if undone, err := mover.Undo(t.Context()); err != nil || !undone {
		t.Fatalf("undone: %v, %v", undone, err)
	}
	mover.Target = servers.Store.(app.Target)
	if _, err := mover.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	file.sameRecords(t, servers)
}

var errFault = errors.New("fault")

// fault makes one step fail, once.
type fault struct {
	step string
	late bool // after it has been done
	over bool
}

func (f *fault) around(step string, do func() error) error {
	if f.over || step != f.step {
		return do()
	}
	f.over = true
	if f.late {
		if err := do(); err != nil {
			return err
		}
	}
	return errFault
}

type faultySource struct {
	app.Source
	*fault
}

func (s *faultySource) BeginExport(ctx context.Context, d store.Export) error {
	return s.around("BeginExport", func() error { return s.Source.BeginExport(ctx, d) })
}

func (s *faultySource) FinishExport(ctx context.Context, transfer string) error {
	return s.around("FinishExport", func() error { return s.Source.FinishExport(ctx, transfer) })
}

type faultyTarget struct {
	app.Target
	*fault
	staged int
}

func (s *faultyTarget) BeginImport(ctx context.Context, a store.Import, last holdfast.TaskID, into store.Into) (got store.Import, err error) {
	err = s.around("BeginImport", func() error {
		var err error
		got, err = s.Target.BeginImport(ctx, a, last, into)
		return err
	})
	return got, err
}

func (s *faultyTarget) Stage(ctx context.Context, transfer string, records []store.Record) error {
	s.staged++
	return s.around(fmt.Sprint("Stage ", s.staged), func() error { return s.Target.Stage(ctx, transfer, records) })
}

func (s *faultyTarget) Staged(ctx context.Context, transfer string) (got store.TransferCounts, err error) {
	err = s.around("Staged", func() error {
		var err error
		got, err = s.Target.Staged(ctx, transfer)
		return err
	})
	return got, err
}

func (s *faultyTarget) CommitImport(ctx context.Context, transfer string) (got store.Import, err error) {
	err = s.around("CommitImport", func() error {
		var err error
		got, err = s.Target.CommitImport(ctx, transfer)
		return err
	})
	return got, err
}
