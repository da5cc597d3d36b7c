package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Batch has the functions of a batch: many tasks, its subtasks, that end together. In is the input of the batch, P the
// payload of a subtask, and Out the output of one. See [HandleBatch] and [Client.StartBatch].
type Batch[In, P, Out any] struct {
	// Split adds the subtasks of the input to the batch. If it returns nil, the batch has all of its subtasks. It runs
	// in a task of its own, with the type of the batch and the suffix ".split". After a crash or an error, another
	// attempt continues after to.Cursor.
	//
	// Split may be nil if programs add the subtasks of all batches of the type; see [Client.OpenBatch].
	Split func(ctx context.Context, in In, to *Split[P]) error
	// Map runs a subtask. Its value is the output of the subtask, unless it is nil: an output costs about as much as the
	// subtask itself. If Map calls CompleteTx, it must call Output before, and its value is not stored. Map is required.
	Map func(ctx context.Context, task holdfast.Task, payload P) (Out, error)
	// Reduce runs when all subtasks have ended and not too many of them have failed. It runs in a task of its own, with
	// the type of the batch and the suffix ".reduce". Its value is the output of that task, unless it is nil; see
	// [ReducedOf]. Like any handler, Reduce can run again after a crash. It may be nil.
	Reduce func(ctx context.Context, items *Results[P, Out]) (any, error)
}

// Suffixes of the types of the tasks that split and reduce batches.
const (
	splitSuffix  = ".split"
	reduceSuffix = ".reduce"
)

// HandleBatch registers the functions of batches of a type. The options and errors are those of [Handle]. The options
// apply to the subtasks. The types with the suffixes ".split" and ".reduce" have settings of their own: their queues,
// limits and timeouts come from the configuration. Only the deadline of its type limits how often a split is deferred,
// because a split often waits for its subtasks.
func HandleBatch[In, P, Out any](c *Client, taskType string, b Batch[In, P, Out], opts ...TypeOption) error {
	if b.Map == nil {
		return Handle[P](c, taskType, nil, opts...)
	}
	err := Handle(c, taskType, func(ctx context.Context, task holdfast.Task, payload P) error {
		output, err := b.Map(ctx, task, payload)
		if err != nil {
			return err
		}
		return outputUnlessCompleted(ctx, output)
	}, opts...)
	if b.Split != nil {
		err = errors.Join(err, Handle(c, taskType+splitSuffix, func(ctx context.Context, task holdfast.Task, in In) error {
			return c.split(ctx, task, taskType, func(to *splitter) error { return b.Split(ctx, in, &Split[P]{to}) })
		}, PolicyFunc(splitPolicy)))
	}
	return errors.Join(err, Handle(c, taskType+reduceSuffix, func(ctx context.Context, task holdfast.Task, _ json.RawMessage) error {
		if b.Reduce == nil {
			return nil
		}
		s, err := stageOf(ctx, c.backend.Store, task)
		if err == nil && s.stage == 0 {
			err = fmt.Errorf("%w: a reduce needs a stage before it", holdfast.ErrInvalid)
		}
		if err != nil {
			return invalidIsPermanent(err)
		}
		output, err := b.Reduce(ctx, &Results[P, Out]{c.backend.Store, s.id, s.stage - 1})
		if err != nil {
			return err
		}
		return outputUnlessCompleted(ctx, output)
	}, AnyPayload()))
}

// outputUnlessCompleted sets the output of the task, unless it is nil, or the handler has stored the success with
// CompleteTx.
func outputUnlessCompleted(ctx context.Context, output any) error {
	return during(ctx, "output", func(a *effect.Attempt) error {
		if a.Completed() {
			return nil
		}
		encoded, err := encodeValue(output)
		if err != nil || string(encoded) == "null" {
			return err
		}
		return a.Output(encoded)
	})
}

// invalidIsPermanent makes the task dead at once if it is no task of a batch.
func invalidIsPermanent(err error) error {
	if errors.Is(err, holdfast.ErrInvalid) || errors.Is(err, holdfast.ErrNotFound) {
		return holdfast.Permanent(err)
	}
	return err
}

// stageTask is a task with which a stage of a batch begins.
type stageTask struct {
	id       store.ID // of the batch
	stage, n int      // its index among the stages, and the task's among those of the stage
	state    store.PlanState
	batch    plan.Batch
	progress plan.BatchProgress
}

// stageOf returns the batch and the stage of a task. It returns an ErrInvalid if the task is no task with which a stage
// begins.
func stageOf(ctx context.Context, s plan.ResultStore, task holdfast.Task) (found stageTask, err error) {
	var ok bool
	notOne := fmt.Errorf("%w: task %s begins no stage of a batch", holdfast.ErrInvalid, task.ID)
	if found.id, found.stage, found.n, ok = plan.StageOrigin(task.Unique); !ok {
		return found, notOne
	}
	// A program can store a task with such a unique key, too. A claimed task does not have its batch.
	stored, err := s.FullTasks(ctx, []holdfast.TaskID{task.ID})
	if err != nil {
		return found, fmt.Errorf("read task %s: %w", task.ID, err)
	}
	if len(stored) != 1 || stored[0].Batch != holdfast.BatchID(found.id) {
		return found, notOne
	}
	p, err := plan.PlanByID(ctx, s, found.id)
	if err != nil {
		return found, batchError(found.id, err)
	}
	found.state = p.State
	if found.batch, found.progress, err = plan.ReadBatch(p); err != nil {
		return found, fmt.Errorf("batch %d: %w", int64(found.id), err)
	}
	if found.stage >= len(found.batch.Stages) {
		return found, notOne
	}
	return found, nil
}

// batchError returns the error of a read of a batch.
func batchError(id store.ID, err error) error {
	if errors.Is(err, holdfast.ErrNotFound) {
		return fmt.Errorf("%w: there is no batch %d", holdfast.ErrNotFound, int64(id))
	}
	return fmt.Errorf("read batch %d: %w", int64(id), err)
}

// BatchOption is an option of StartBatch, OpenBatch and StartChain.
type BatchOption interface{ applyToBatch(*batchDraft) error }

// batchDraft is a batch to which options apply.
type batchDraft struct {
	name string
	spec plan.Batch
	then []plan.Task
}

type batchOption func(*batchDraft) error

func (f batchOption) applyToBatch(d *batchDraft) error { return f(d) }

// AllowFailed sets how many subtasks of a stage may fail: a number such as "10", or a share of the subtasks such as
// "1%". The default is "0". A subtask fails if it is dead, cancelled or deleted. If more have failed, the batch is
// stopped until people have retried them, or have resumed the batch without them. The subtasks that are stored still
// run.
func AllowFailed(limit string) BatchOption {
	return batchOption(func(d *batchDraft) (err error) {
		d.spec.Allowed, err = plan.ParseAllowed(limit)
		return err
	})
}

// BatchName sets the name of the batch. While a batch with the name has not ended, a call with the name starts no
// second one, and returns that batch. So a call with a name is safe to repeat. A name has letters, digits and . _ -.
func BatchName(name string) BatchOption {
	return batchOption(func(d *batchDraft) error {
		d.name = name
		return plan.CheckName(name)
	})
}

// Then adds a task to the last stage of the batch. It is stored when all other stages have ended, together with the
// tasks of other calls of Then. The arguments are those of Enqueue, without the options that set a unique key or a due
// time.
func Then(taskType string, payload any, opts ...TaskOption) BatchOption {
	return batchOption(func(d *batchDraft) error {
		task, err := batchTask(NewTask{taskType, payload, opts})
		d.then = append(d.then, task)
		return err
	})
}

// Window sets the number of open subtasks of the batch at which its split waits, at least 1. The default is 20,000. The
// batch can have somewhat more open subtasks, because a split adds them in pages.
func Window(n int) BatchOption {
	return batchOption(func(d *batchDraft) error {
		if d.spec.Window = n; n < 1 {
			return fmt.Errorf("%w: the window %d must be at least 1", holdfast.ErrInvalid, n)
		}
		return nil
	})
}

// BatchNote adds a note for the people who operate the batch.
func BatchNote(text string) BatchOption {
	return batchOption(func(d *batchDraft) error {
		d.spec.Note = text
		return nil
	})
}

// batchTask returns a task with which a stage begins.
func batchTask(n NewTask) (plan.Task, error) {
	task, err := n.Complete()
	switch {
	case err != nil:
		return plan.Task{}, err
	case task.Unique != "":
		return plan.Task{}, fmt.Errorf("%w: a task of a stage cannot have a unique key of its own; remove the option Unique", holdfast.ErrInvalid)
	case task.Delay != 0 || !task.At.IsZero():
		return plan.Task{}, fmt.Errorf("%w: a task of a stage is due when its stage begins; remove the option In or At", holdfast.ErrInvalid)
	}
	return plan.TaskOf(task), nil
}

// StartBatch starts a batch of a type that [HandleBatch] handles, in this process or in another one. It stores the task
// that splits the input. The task that reduces the outputs is stored when all subtasks have ended.
//
// StartBatch returns ErrInvalid if an argument is wrong. Without [BatchName], a call that is repeated after an error
// can start a second batch.
func (c *Client) StartBatch(ctx context.Context, taskType string, input any, opts ...BatchOption) (holdfast.BatchID, error) {
	split, err := batchTask(NewTask{Type: taskType + splitSuffix, Payload: input})
	if err != nil {
		return 0, fmt.Errorf("start batch of type %.100s: %w", taskType, err)
	}
	return c.startBatch(ctx, opts, plan.Stage{Split: &split},
		plan.Stage{Tasks: []plan.Task{plan.TaskOf(holdfast.NewTask{Type: taskType + reduceSuffix})}, After: true})
}

// startBatch starts a batch with stages and the options of the caller.
func (c *Client) startBatch(ctx context.Context, opts []BatchOption, stages ...plan.Stage) (holdfast.BatchID, error) {
	b, err := c.openBackend()
	if err != nil {
		return 0, err
	}
	d := batchDraft{spec: plan.Batch{Stages: stages}}
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option.applyToBatch(&d); err != nil {
			return 0, fmt.Errorf("start batch: %w", err)
		}
	}
	if len(d.then) > 0 {
		d.spec.Stages = append(d.spec.Stages, plan.Stage{Tasks: d.then, After: true})
	}
	started, _, err := b.StartBatch(ctx, by(""), d.name, d.spec)
	if err != nil {
		return 0, fmt.Errorf("start batch: %w", err)
	}
	return started.ID, nil
}

// BatchState is the state of a batch.
type BatchState string

// The states of a batch.
const (
	BatchRunning   BatchState = BatchState(store.PlanRunning)
	BatchPaused    BatchState = BatchState(store.PlanPaused)    // a person has paused it
	BatchStopped   BatchState = BatchState(store.PlanStopped)   // it waits for a person; BatchStatus.Stopped says why
	BatchDone      BatchState = BatchState(store.PlanDone)      // all stages have ended
	BatchCancelled BatchState = BatchState(store.PlanCancelled) // a person has cancelled it, and its tasks have ended
)

// BatchCounts are numbers of tasks. The janitor counts now and then, so that the numbers of a running batch are
// somewhat old.
type BatchCounts struct {
	Total     int64 // stored tasks
	Done      int64
	Dead      int64
	Cancelled int64 // also archived ones
	Gone      int64 // deleted by a person
	Duplicate int64 // not stored, because their unique keys were taken
}

// BatchStatus is how far a batch is.
type BatchStatus struct {
	ID        holdfast.BatchID
	Name      string // "" if it has none
	Note      string
	State     BatchState
	Stopped   string      // why a stopped batch does not go on
	Stage     int         // index of the stage that runs, or of the last one that has run
	Stages    int         // number of stages
	Sealed    bool        // the stage gets no more tasks
	Now       BatchCounts // the tasks of the stage, without its split
	Subtasks  BatchCounts // the subtasks of all stages
	CreatedAt time.Time
	EndedAt   time.Time // zero while the batch has not ended
}

func statusOf(b app.Batch) BatchStatus {
	p := &b.Progress
	_, created := b.Creator()
	return BatchStatus{
		ID: b.ID, Name: b.Name, Note: b.Spec.Note, State: BatchState(b.State), Stopped: p.Stopped, Stage: p.Stage, Stages: len(b.Spec.Stages),
		Sealed: p.Sealed, Now: BatchCounts(p.Now), Subtasks: BatchCounts(p.Subtasks), CreatedAt: created, EndedAt: b.EndedAt,
	}
}

// Batch returns how far a batch is. It returns ErrNotFound if there is none with the id.
func (c *Client) Batch(ctx context.Context, id holdfast.BatchID) (BatchStatus, error) {
	b, err := c.openBackend()
	if err != nil {
		return BatchStatus{}, err
	}
	batch, err := b.Batch(ctx, id)
	if err != nil {
		return BatchStatus{}, fmt.Errorf("read batch: %w", err)
	}
	return statusOf(batch), nil
}

// WaitBatch waits until a batch has ended, or until it waits for a person because it is paused or stopped, and returns
// it. If ctx ends first, WaitBatch returns the batch as last read and the error of ctx. It reads the batch five times a
// second, so use it only in tests and tools. A program that must act at the end of a batch gives the option [Then].
func (c *Client) WaitBatch(ctx context.Context, id holdfast.BatchID) (BatchStatus, error) {
	b, err := c.openBackend()
	if err != nil {
		return BatchStatus{}, err
	}
	batch, err := b.AwaitBatch(ctx, id, func(app.Batch) {})
	if err != nil {
		return statusOf(batch), fmt.Errorf("wait for batch %s: %w", id, err)
	}
	return statusOf(batch), nil
}
