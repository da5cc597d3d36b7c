package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Bounds of what is in memory at once while tasks are copied.
const (
	copyTasks = 1000
	copyBytes = 8 << 20 // of payloads and attempts; a task that has more goes alone
)

// Source is a store that tasks can leave, Target one that they can be carried to.
type (
	Source interface {
		store.Store
		store.Exporter
	}
	Target interface {
		store.Store
		store.Importer
	}
)

// Mover carries all tasks of one store to another, so that each of them is in exactly one of the two to
// everybody who looks or works. Its caller is the only process that serves the source, until Run or Undo
// has returned. Source, Target, From and To are required.
type Mover struct {
	Source   Source
	Target   Target
	From, To string // their names for people, without a password
	Into     store.Into
	Settings holdfast.Settings // by whose policies the tasks of gone workers are judged
	// Progress, if set, is told how many tasks have been copied.
	Progress func(done, total int64)
}

// Moved says what Run has done.
type Moved struct {
	Source  store.TransferCounts // empty if the source said already that it was done
	Staged  store.TransferCounts // as counted by the target; empty if Already is set
	Import  store.Import
	Already bool // an earlier call had done it all
	At      time.Time
	Took    time.Duration
}

// Run carries the tasks. After an error, a crash or a kill, wherever it was, another call goes on
// from there:
//
//  1. Settle: what was running is judged, for its workers are gone.
//  2. BeginExport: the source is marked. From here on nobody can change a task of it.
//  3. BeginImport: the target finds room for the ids. If it fails, and this call made the mark, the mark is taken away.
//  4. Copy the tasks in batches to where the target shows them to nobody, and on from the last batch.
//  5. Compare what there is with what was staged. A difference ends it here.
//  6. CommitImport: from one moment to the next they are the target's. This is the one point of no return.
//  7. FinishExport: the source says so to everybody who asks.
//
// It is an ErrConflict if the source is marked for another target, and if the target refuses. An error that leaves the
// source marked says so.
func (m *Mover) Run(ctx context.Context) (Moved, error) {
	began := time.Now()
	mark, err := m.Source.Export(ctx)
	if err != nil {
		return Moved{}, err
	}
	fresh := mark.Transfer == ""
	incarnation, err := m.Target.Incarnation(ctx)
	switch {
	case err != nil && !fresh && !mark.Finished():
		return Moved{}, m.blocked(err)
	case err != nil:
		return Moved{}, err
	case fresh:
		mark = store.Export{Transfer: rand.Text(), From: m.From, To: m.To, Destination: incarnation}
		if err := m.beginExport(ctx, mark); err != nil {
			return Moved{}, err
		}
	case mark.Destination != incarnation:
		return Moved{}, m.otherDatabase(mark)
	case mark.Finished():
		return m.finished(ctx, mark)
	}
	moved, err := m.begin(ctx, mark)
	if err != nil && fresh { // nothing was copied, so it can be as if nobody had tried
		if cancelErr := m.cancel(ctx, mark); cancelErr != nil {
			return Moved{}, m.blocked(errors.Join(err, cancelErr))
		}
		return Moved{}, err
	}
	if err == nil && !moved.Already {
		err = m.transfer(ctx, &moved)
	}
	if err != nil {
		return Moved{}, m.blocked(err)
	}
	moved.At, moved.Took = moved.Import.CommittedAt, time.Since(began)
	if err := m.Source.FinishExport(ctx, mark.Transfer); err != nil {
		return moved, fmt.Errorf("%w; the tasks ARE at %s, but %s does not say so yet: run this again to finish", err, m.To, m.From)
	}
	return moved, nil
}

// blocked says what an error means for the tasks after the source was marked.
func (m *Mover) blocked(err error) error {
	return fmt.Errorf("%w; the tasks of %s stay blocked until this is run again, or with --undo", err, m.From)
}

// beginExport marks the source.
func (m *Mover) beginExport(ctx context.Context, mark store.Export) error {
	if err := m.mustBeEmpty(ctx); err != nil {
		return err
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	err := m.Source.BeginExport(ctx, mark)
	if err == nil || errors.Is(err, holdfast.ErrConflict) {
		return err
	}
	if cancelErr := m.cancel(ctx, mark); cancelErr != nil { // the answer may be all that was lost
		return m.blocked(errors.Join(err, cancelErr))
	}
	return err
}

// cancelLimit bounds how long taking back takes, also when the caller is in a hurry to end.
const cancelLimit = 10 * time.Second

// cancel takes back a mark made by this call, for which nothing was staged. What the target has noted of it
// does no harm if it cannot be reached.
func (m *Mover) cancel(ctx context.Context, mark store.Export) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
	defer stop()
	_ = m.Target.AbortImport(ctx, mark.Transfer)
	return m.Source.CancelExport(ctx, mark.Transfer)
}

// mustBeEmpty refuses a target before anybody notices anything. BeginImport asks again, when nobody can come between.
func (m *Mover) mustBeEmpty(ctx context.Context) error {
	if m.Into == store.IntoExisting {
		return nil
	}
	counts, err := m.Target.Count(ctx, store.Filter{})
	if err != nil {
		return err
	}
	if n := (store.TransferCounts{States: counts}).Tasks(); n > 0 {
		return store.Occupied(m.To, n)
	}
	return nil
}

// settleBatch bounds the tasks that are judged at once; settleTries how often in a row all of them may
// have moved in between.
const (
	settleBatch = 500
	settleTries = 5
)

// settle judges the tasks of workers that are gone, as a janitor does: all workers of the source are.
func (m *Mover) settle(ctx context.Context) error {
	for tries := 0; tries < settleTries; tries++ {
		tasks, err := m.Source.Abandoned(ctx, 0, settleBatch)
		if err != nil || len(tasks) == 0 {
			return err
		}
		now, err := m.Source.Now(ctx)
		if err != nil {
			return err
		}
		moves := make([]holdfast.Transition, len(tasks))
		for i, task := range tasks {
			policy := m.Settings.For(task.Type).Policy
			if moves[i], err = holdfast.Settle(task, holdfast.Crashed(task.Run), now, policy); err != nil {
				return err
			}
		}
		accepted, err := m.Source.Apply(ctx, moves)
		if err != nil {
			return err
		}
		for _, ok := range accepted {
			if ok {
				tries = -1
			}
		}
	}
	return fmt.Errorf("%w: the tasks of %s that were running keep changing; stop whatever works on it, then run this again", holdfast.ErrConflict, m.From)
}

// begin counts what there is and announces it to the target.
func (m *Mover) begin(ctx context.Context, mark store.Export) (moved Moved, err error) {
	if moved.Source, err = m.Source.TransferCounts(ctx); err != nil {
		return moved, err
	}
	incarnation, err := m.Source.Incarnation(ctx)
	if err != nil {
		return moved, err
	}
	announced := store.Import{Source: incarnation, From: m.From, Transfer: mark.Transfer}
	moved.Import, err = m.Target.BeginImport(ctx, announced, moved.Source.Last, m.Into)
	moved.Already = moved.Import.Committed()
	return moved, err
}

// transfer copies, compares and commits what was begun.
func (m *Mover) transfer(ctx context.Context, moved *Moved) error {
	err := m.copy(ctx, moved.Import, moved.Source.Tasks())
	if err != nil {
		return err
	}
	if moved.Staged, err = m.compare(ctx, moved.Import.Transfer, moved.Source); err != nil {
		return err
	}
	moved.Import, err = m.Target.CommitImport(ctx, moved.Import.Transfer)
	if errors.Is(err, holdfast.ErrConflict) {
		err = fmt.Errorf("%w; nothing has changed there: those tasks have to be gone first (janitor.keep_done and so on say when)", err)
	}
	return err
}

// copy brings over what was not staged yet.
func (m *Mover) copy(ctx context.Context, begun store.Import, total int64) error {
	progress, done := m.Progress, int64(0)
	if progress == nil {
		progress = func(int64, int64) {}
	}
	if begun.Through > 0 {
		staged, err := m.Target.Staged(ctx, begun.Transfer)
		if err != nil {
			return err
		}
		done = staged.Tasks()
	}
	for after := begun.Through; ; {
		progress(done, total)
		records, err := m.Source.Records(ctx, after, copyTasks, copyBytes)
		if err != nil || len(records) == 0 {
			return err
		}
		if err := m.Target.Stage(ctx, begun.Transfer, records); err != nil {
			return m.cannotHold(err, records)
		}
		done, after = done+int64(len(records)), records[len(records)-1].ID
	}
}

// cannotHold says what to do if err is about a task that the target cannot hold.
func (m *Mover) cannotHold(err error, records []store.Record) error {
	failure, ok := errors.AsType[*store.RecordError](err)
	if !ok {
		return err
	}
	for _, record := range records {
		if record.ID != failure.Task {
			continue
		}
		cancel, kept := "", record.State
		if holdfast.Allowed(holdfast.EventCancel, kept) {
			cancel, kept = fmt.Sprintf("run: holdfast task cancel %s, then ", record.ID), holdfast.Cancelled
		}
		return fmt.Errorf("%w; %s cannot hold that task, which is %s: take all back with --undo, %slet holdfast serve run with a short janitor.keep_%s until it is pruned, and begin again",
			err, m.To, record.State, cancel, kept)
	}
	return err
}

// compare counts what was staged.
func (m *Mover) compare(ctx context.Context, transfer string, there store.TransferCounts) (store.TransferCounts, error) {
	staged, err := m.Target.Staged(ctx, transfer)
	if err != nil {
		return staged, err
	}
	var wrong []string
	differ := func(what string, want, got int64) {
		if want != got {
			wrong = append(wrong, fmt.Sprintf("%s holds %d %s, but %d were staged", m.From, want, what, got))
		}
	}
	for _, state := range holdfast.States() {
		differ(string(state)+" tasks", there.States[state], staged.States[state])
	}
	differ("attempts", there.Attempts, staged.Attempts)
	if there.Last != staged.Last {
		wrong = append(wrong, fmt.Sprintf("the last task of %s is %s, but %s was staged last", m.From, there.Last, staged.Last))
	}
	if len(wrong) > 0 {
		return staged, fmt.Errorf("the copy at %s is not complete, take it back with --undo and begin again: %s", m.To, strings.Join(wrong, "; "))
	}
	return staged, nil
}
