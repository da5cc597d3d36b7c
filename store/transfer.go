package store

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
)

// Tasks are carried from one store to another by a transfer: the store they leave is marked, so that nobody
// changes them any more; they are copied to the other, staged there and seen by nobody; and the import is
// committed, all of it at once. That is the one moment at which they change sides: before it they belong to the
// store they leave, and can go back, after it to the other. Each step may be called again after a crash.

// Exporter is the store that tasks leave. The caller is the only process that serves it, and no task in
// it is running.
type Exporter interface {
	// Export returns the mark that BeginExport has left; its zero value if there is none.
	Export(ctx context.Context) (Export, error)
	// BeginExport marks the store. When it has returned, whatever would change a task or an attempt
	// fails with an ErrConflict that says where the tasks go, also in processes that have opened the store
	// already; what was committed before is there to be carried. ErrConflict if a task is
	// running. A store that is marked for the same transfer is left as it is; for another one it is an ErrConflict.
	BeginExport(ctx context.Context, e Export) error
	// FinishExport notes that the import of the transfer was committed. The store stays marked.
	FinishExport(ctx context.Context, transfer string) error
	// CancelExport takes the mark of the transfer away, and the tasks can be changed again. A store that is not
	// marked is left as it is. The caller has made sure that nobody works, or ever will work, on the tasks
	// in another store.
	CancelExport(ctx context.Context, transfer string) error
	// TransferCounts counts what there is to carry.
	TransferCounts(ctx context.Context) (TransferCounts, error)
	// Records returns the tasks with the ids above after, in the order of their ids: no more than limit, and
	// of those only the first ones that hold at most size bytes together, but at least one. None means
	// that there are no more.
	Records(ctx context.Context, after holdfast.TaskID, limit, size int) ([]Record, error)
}

// Export says that the tasks of a store are being carried to another one, or were.
type Export struct {
	Transfer    string // names the one attempt to carry them; made at random, never used again
	From        string // where they are, for people
	To          string // where they go, for people: without a password
	Destination string // the incarnation of the store there
	BegunAt     time.Time
	FinishedAt  time.Time // zero until they are known to be there
}

// Finished reports whether the tasks are known to be in the other store.
func (e Export) Finished() bool { return !e.FinishedAt.IsZero() }

// Err returns the ErrConflict that answers whoever wants to change a task of a store that is marked.
func (e Export) Err() error {
	if !e.Finished() {
		return fmt.Errorf("%w: the tasks of %s are being carried to %s since %s; run the same holdfast migrate-backend again to finish, or with --undo to go back",
			holdfast.ErrConflict, e.From, e.To, e.BegunAt.Format(time.RFC3339))
	}
	return fmt.Errorf("%w: the tasks of %s were carried to %s at %s; to work with them set DATABASE_URL, HOLDFAST_DATABASE_SCHEMA and AMQP_URL for that server",
		holdfast.ErrConflict, e.From, e.To, e.FinishedAt.Format(time.RFC3339))
}

// Record is one task with all that is carried of it.
type Record struct {
	holdfast.Task                    // complete, with payload; its run stays behind
	Again         bool               // see Due.Again
	Attempts      []holdfast.Attempt // oldest first; their runs stay behind, their workers' names do not
}

// RecordError says which task a store cannot hold, and why.
type RecordError struct {
	Task holdfast.TaskID
	Err  error
}

// Error implements error.
func (e *RecordError) Error() string { return fmt.Sprintf("task %s: %v", e.Task, e.Err) }

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Err }

// TransferCounts counts tasks, to be compared with the counts on the other side.
type TransferCounts struct {
	States   map[holdfast.State]int64 // every state is present
	Attempts int64                    // of all tasks together
	Last     holdfast.TaskID          // highest id; 0 if there are no tasks
}

// Tasks returns how many tasks there are, whatever their state.
func (c TransferCounts) Tasks() int64 {
	total := int64(0)
	for _, n := range c.States {
		total += n
	}
	return total
}

// Importer is the store that tasks are carried to. Until an import is committed no other role sees its tasks.
type Importer interface {
	// BeginImport prepares a transfer of tasks whose ids are at most last, and returns it with how far it came, if
	// it was begun before: then nothing else changes. The ids stay as they are in a store
	// without tasks; in another one they are shifted beyond all that it has given out, and it gives none of theirs
	// to anybody else from then on. ErrConflict if there are tasks, or another import is not committed yet, and
	// into is IntoEmpty; and if tasks of the same source were imported by another transfer. An import
	// of the same source that is not committed is aborted.
	BeginImport(ctx context.Context, i Import, last holdfast.TaskID, into Into) (Import, error)
	// Stage stores records that follow on those staged before, in one transaction. Those that are there
	// already are left out. ErrInvalid, with a RecordError, if the store cannot hold a task; ErrNotFound if the
	// transfer is not known.
	Stage(ctx context.Context, transfer string, records []Record) error
	// Staged counts what was staged and not committed yet. Last is an id of the source.
	Staged(ctx context.Context, transfer string) (TransferCounts, error)
	// CommitImport makes all that was staged tasks of this store, in one transaction; those that are ready are given
	// to DispatchDue when they are due. An import that was committed is left as it is. ErrConflict, and
	// nothing has changed, if tasks of this store have unique keys of theirs; the text names some.
	CommitImport(ctx context.Context, transfer string) (Import, error)
	// AbortImport forgets an import and what was staged of it; one that is not known is no error. ErrConflict
	// if it was committed.
	AbortImport(ctx context.Context, transfer string) error
	// Import returns the import of a transfer. ErrNotFound if it is not known.
	Import(ctx context.Context, transfer string) (Import, error)
	// OpenImports returns the imports that are not committed, oldest first. Their Tasks are those that were staged.
	OpenImports(ctx context.Context) ([]Import, error)
}

// Into says what a store may hold before an import.
type Into bool

// What a store may hold.
const (
	IntoEmpty    Into = false // nothing
	IntoExisting Into = true  // other tasks
)

// Occupied is the ErrConflict of a store that holds tasks where IntoEmpty was asked for.
func Occupied(where string, tasks int64) error {
	return fmt.Errorf("%w: %s holds %d tasks already; add --into-existing to carry these there too, under new ids", holdfast.ErrConflict, where, tasks)
}

// Import is one transfer in the books of the store that tasks are carried to. Source, From and Transfer are
// the caller's.
type Import struct {
	Source   string // the incarnation of the store that the tasks come from
	From     string // the same for people
	Transfer string

	Shift       int64           // was added to the id of every task
	Through     holdfast.TaskID // all tasks up to this id of the source were staged
	Tasks       int64           // that were imported
	BegunAt     time.Time
	CommittedAt time.Time // zero before
}

// Committed reports whether the tasks are those of the store.
func (i Import) Committed() bool { return !i.CommittedAt.IsZero() }
