package store

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/holdfastq/holdfast"
)

// Plans stores plans. A plan stores tasks at times that it determines; a schedule is a kind of plan. Any process may
// make the next step of a plan, and may end at any point. A step is one transaction, and the version of the plan lets
// only one process make it.
type Plans interface {
	// CreatePlan stores a plan and returns it with its id, its version and its time. It uses Kind, Name, State, NextAt,
	// Spec and Progress, and records by as the creator. It returns ErrConflict if a plan of the kind has the name and
	// has not ended.
	CreatePlan(ctx context.Context, by Actor, p Plan) (Plan, error)
	// PlanByName returns the plan of a kind with a name that has not ended. It returns ErrNotFound if there is none.
	PlanByName(ctx context.Context, kind PlanKind, name string) (Plan, error)
	// ListPlans returns the plans that a filter selects.
	ListPlans(ctx context.Context, f PlanFilter) ([]Plan, error)
	// DuePlans returns at most limit plans of the kinds whose NextAt is at most the time of the store plus within, those
	// with the earliest NextAt first. within may be negative. It may leave out a Spec of more than MaxDueSpec bytes.
	DuePlans(ctx context.Context, kinds []PlanKind, within time.Duration, limit int) ([]Plan, error)
	// StepPlan makes a step in one transaction: it stores the tasks of the step like Insert, calls finish with the
	// result, and stores the plan and the items that finish returns. It returns that plan with its new version. The
	// store uses State, NextAt, Spec and Progress. finish must have no side effects, because a store may call it again.
	// DispatchOutbox publishes the tickets of the tasks.
	//
	// StepPlan returns ErrConflict, and changes nothing, if the version of the plan differs from that of step.From. See
	// step.Accept and step.Fence for other conditions. It returns *KeyHeldError as Insert does.
	StepPlan(ctx context.Context, step PlanStep, finish func(Inserted) (Plan, []PlanItem)) (Plan, error)
	// FailPlans postpones plans whose steps have failed: it increases Failures, and NextAt is the time of the store plus
	// the pause. It leaves out plans that have changed since the caller read them. A step resets Failures.
	FailPlans(ctx context.Context, failed []PlanFailure) error
	// SaveItems stores items of a plan for an attempt that runs. The version of the plan stays, so that attempts that
	// save delay neither each other nor a step. SaveItems returns ErrConflict, and changes nothing, if the version of the
	// plan differs from that of the given plan. It returns ErrFenced if the attempt does not run any more.
	SaveItems(ctx context.Context, plan Plan, by Fence, items []PlanItem) error
	// PlanItems returns items of a plan.
	PlanItems(ctx context.Context, plan ID, f PlanItemFilter) ([]PlanItem, error)
	// PlanTally counts the tasks of each chunk by state. It reads only the ids of the chunks.
	PlanTally(ctx context.Context, chunks []PlanChunk) ([]Tally, error)
	// PostponePlans postpones plans of which no step is expected for some time: NextAt becomes the time of the store
	// plus the pause. It uses only the ids and the versions of the plans, and the versions stay. It leaves out plans
	// that have ended, have no NextAt, or have another version, and may leave out plans that others change at the same
	// time. It returns the ids of the postponed plans.
	PostponePlans(ctx context.Context, plans []Plan, pause time.Duration) ([]ID, error)
}

// PlanChunk selects tasks by ids.
type PlanChunk struct {
	// Plan selects only the members of the plan: the tasks that its steps with Members have stored. 0 selects all tasks.
	Plan  ID
	Tasks []IDRange
}

// Tally has the numbers of tasks in a chunk of ids.
type Tally struct {
	By      map[holdfast.State]int64 // states without tasks are present with 0
	Missing int64                    // ids without a selected task; usually, a person has purged the task
	// NextRunAt is the earliest NextRunAt of the ready tasks, and zero if no task is ready.
	NextRunAt time.Time
}

// PlanFailure is a failed step of a plan.
type PlanFailure struct {
	Plan  Plan // as the caller has read it
	Error string
	Pause time.Duration // until the next try
}

// MaxDueSpec is the size of a Spec in bytes up to which DuePlans returns it.
const MaxDueSpec = 16 << 10

// MaxPlanFailure is the maximum length of the error of a failed step in characters. A longer one is cut.
const MaxPlanFailure = 1000

// PlanItem is a part of a plan that has a row of its own.
type PlanItem struct {
	Item   string // unique in its plan
	State  PlanItemState
	NextAt time.Time // when its engine must look at it; zero means never
	Data   json.RawMessage
}

// PlanItemState is the state of an item.
type PlanItemState string

// The states of an item.
const (
	ItemOpen   PlanItemState = "open"
	ItemClosed PlanItemState = "closed" // all of its tasks have ended
	ItemDead   PlanItemState = "dead"   // a task of it is dead and waits for a person
)

// PlanItemFilter selects items of a plan.
type PlanItemFilter struct {
	State PlanItemState // required with Due; otherwise empty means any
	// Due selects the items with a NextAt up to the time of the store plus Within, the earliest first. Otherwise the
	// items are in the order of their names, as bytes.
	Due    bool
	Within time.Duration
	After  string // only greater names; for the next page; not together with Due
	Limit  int    // at most this many; 0 means 50
}

// PlanKind is a kind of plan. Each kind has an engine that makes its steps.
type PlanKind string

// The kinds of plans.
const (
	ScheduleKind PlanKind = "schedule" // stores tasks at regular times
	SourceKind   PlanKind = "source"   // is pulled in slices of time
	ShardKind    PlanKind = "shard job"
	BatchKind    PlanKind = "batch" // has tasks that end together
)

// PlanState is the state of a plan.
type PlanState string

// The states of a plan. Ended plans never change. Prune deletes them when they are as old as tasks that are done.
const (
	PlanRunning   PlanState = "running"
	PlanPaused    PlanState = "paused"    // a person or its engine has paused it
	PlanStopped   PlanState = "stopped"   // nothing happens before people have repaired its dead tasks
	PlanDone      PlanState = "done"      // ended: it stores no more tasks
	PlanCancelled PlanState = "cancelled" // ended: a person has cancelled it
	PlanDeleted   PlanState = "deleted"   // ended: a person has deleted it
)

// Ended reports whether the state never changes.
func (s PlanState) Ended() bool { return s == PlanDone || s == PlanCancelled || s == PlanDeleted }

// Plan is a stored plan. Its engine knows the meaning of Spec and Progress.
type Plan struct {
	ID      ID
	Kind    PlanKind
	Name    string // unique among the plans of the kind that have not ended
	State   PlanState
	Version int64 // each step increases it
	// NextAt is when the next step may be possible. The zero time means that no time makes a step possible. It only
	// saves reads: the version decides who makes a step, and Progress which step it is.
	NextAt    time.Time
	Spec      json.RawMessage // what was asked for
	Progress  json.RawMessage // how far the plan is
	Actor                     // who created it
	CreatedAt time.Time
	EndedAt   time.Time // zero while the plan has not ended
	// Failures is the number of steps that have failed since the last one that has succeeded, and Failure the error of
	// the last of them.
	Failures int
	Failure  string
}

// Subject returns the name of the plan in the audit log. Batches have their ids, because most have no name.
func (p *Plan) Subject() string {
	if p.Kind == BatchKind {
		return PlanSubject(p.Kind, strconv.FormatInt(int64(p.ID), 10))
	}
	return PlanSubject(p.Kind, p.Name)
}

// PlanSubject returns the name of a plan in the audit log.
func PlanSubject(kind PlanKind, name string) string { return string(kind) + " " + name }

// Document returns a plan as JSON for the audit log.
func (p *Plan) Document() json.RawMessage {
	document, err := json.Marshal(struct {
		State PlanState       `json:"state"`
		Spec  json.RawMessage `json:"spec"`
	}{p.State, p.Spec})
	if err != nil {
		panic(err) // Spec is valid JSON
	}
	return document
}

// PlanFilter selects plans.
type PlanFilter struct {
	Kind   PlanKind    // with Ended, empty selects all kinds
	States []PlanState // if not empty, only plans in one of these states
	IDs    []ID        // if not empty, only these plans
	// Ended also selects plans that have ended. Then the plans with the highest ids come first, otherwise the plans are
	// in the order of their names, as bytes.
	Ended  bool
	After  string // only greater names; for the next page without Ended
	Before ID     // if not 0, only smaller ids; for the next page with Ended
	Limit  int    // at most this many; 0 means 50
}

// PlanStep is one step of a plan.
type PlanStep struct {
	From Plan // as the caller has read it
	// Accept, if not nil, makes a step of any version of the plan, so From needs only the kind and the id. The store
	// calls it before the rest of the step, with the locked plan and the time of the store. If Accept returns an error,
	// StepPlan returns that error and changes nothing. Accept must not call the store, and the store may call it again.
	// Without a plan, StepPlan returns ErrNotFound.
	Accept func(from Plan, now time.Time) error
	Insert []holdfast.NewTask
	// Members makes the stored tasks of Insert members of the plan; see holdfast.Task.Batch. A duplicate is no member.
	Members bool
	Drop    []string // items to delete
	// Fence, if not nil, is the attempt that makes the step. StepPlan returns ErrFenced, and changes nothing, if it does
	// not run any more.
	Fence *Fence
	// By and Action are the actor and the action of the audit entry: for a change by a person, and for a pause by the
	// engine. If By is nil, StepPlan adds no entry.
	By     *Actor
	Action Action
}

// Fence is an attempt of a worker.
type Fence struct {
	Task    holdfast.TaskID
	Attempt int
	Worker  holdfast.WorkerID
}
