package surface

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Batch is the JSON form of a batch. The counts are those of the subtasks of all stages.
type Batch struct {
	ID      holdfast.BatchID `json:"id"`
	Name    string           `json:"name,omitempty"`
	State   store.PlanState  `json:"state" enum:"running,paused,stopped,done,cancelled"`
	Stopped string           `json:"stopped,omitempty" doc:"Why the batch is stopped."`
	StepFailure
	Cancelling bool         `json:"cancelling,omitempty" doc:"The batch ends when all of its tasks have ended."`
	Stage      int          `json:"stage" doc:"The number of the stage that runs, from 1."`
	Stages     []BatchStage `json:"stages"`
	BatchCounts
	StageCounts BatchCounts   `json:"stage_counts" doc:"The counts of the stage that runs, without its split."`
	Sealed      bool          `json:"sealed" doc:"The stage gets no more subtasks. Before that, total is a lower bound."`
	Pages       int           `json:"pages" doc:"How many pages of subtasks the stage has got, which is the number of the next page."`
	PushedAt    time.Time     `json:"pushed_at,omitzero" doc:"When the stage got its last page of subtasks."`
	AllowFailed plan.Allowed  `json:"allow_failed" doc:"With so many failed subtasks in a stage, the batch goes on: a number, or a share such as 1%."`
	Window      int           `json:"window,omitempty" doc:"A split waits at so many open subtasks; missing: 20000."`
	Rate        float64       `json:"rate,omitempty" doc:"How many tasks have ended a second, lately."`
	LeftSeconds *float64      `json:"left_seconds,omitempty" doc:"An estimate of how long the stage still takes; missing if it is not known."`
	Note        string        `json:"note,omitempty"`
	Actor       string        `json:"actor" doc:"Who started the batch."`
	Surface     store.Surface `json:"surface"`
	Reason      string        `json:"reason,omitempty"`
	StartedAt   time.Time     `json:"started_at"`
	EndedAt     time.Time     `json:"ended_at,omitzero"`
}

// BatchStage is the JSON form of a stage.
type BatchStage struct {
	Tasks int      `json:"tasks" doc:"The number of tasks with which the stage begins, without its split."`
	Types []string `json:"types" doc:"The types of these tasks."`
	Split string   `json:"split,omitempty" doc:"The type of the task that stores more subtasks of the stage."`
	Open  bool     `json:"open,omitempty" doc:"Programs store more subtasks of the stage, until they seal the batch."`
	After bool     `json:"after,omitempty" doc:"The tasks of the stage follow the subtasks, and are none themselves."`
}

// BatchCounts is the JSON form of the counts of tasks.
type BatchCounts struct {
	Total     int64 `json:"total" doc:"Stored tasks."`
	Open      int64 `json:"open" doc:"Tasks that have not ended."`
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled" doc:"Cancelled and archived tasks."`
	Gone      int64 `json:"gone" doc:"Tasks that a person has deleted."`
	Duplicate int64 `json:"duplicate" doc:"Tasks that were not stored, because their unique keys were taken."`
}

// Failed returns how many tasks have ended, and are not done.
func (c BatchCounts) Failed() int64 { return c.Dead + c.Cancelled + c.Gone }

func batchCounts(c plan.Counts) BatchCounts {
	return BatchCounts{c.Total, c.Open(), c.Done, c.Dead, c.Cancelled, c.Gone, c.Duplicate}
}

// BatchOf returns the JSON form of a batch.
func BatchOf(b app.Batch) Batch {
	spec, p := b.Spec, b.Progress
	by, at := b.Creator()
	form := Batch{
		ID: b.ID, Name: b.Name, State: b.State, Stopped: p.Stopped, Cancelling: p.Cancelling && !b.State.Ended(), Stage: p.Stage + 1,
		Stages: Each(spec.Stages, batchStage), BatchCounts: batchCounts(p.Subtasks), StageCounts: batchCounts(p.Now),
		Sealed: p.Sealed, Pages: p.Pages, PushedAt: p.PushedAt, AllowFailed: spec.Allowed, Window: spec.Window, Note: spec.Note,
		Actor: by.Name, Surface: by.Surface, Reason: by.Reason, StartedAt: at, EndedAt: b.EndedAt,
	}
	form.FailedSteps, form.Failure = b.Failing()
	if !b.State.Ended() {
		form.Rate = rounded(p.Rate)
	}
	if left, known := b.Left(); known {
		form.LeftSeconds = new(rounded(left.Seconds()))
	}
	if form.Pages == 0 { // PushedAt is the start then
		form.PushedAt = time.Time{}
	}
	return form
}

// rounded rounds a number to a tenth.
func rounded(f float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', 1, 64), 64)
	return r
}

func batchStage(s plan.Stage) BatchStage {
	form := BatchStage{Tasks: len(s.Tasks), Types: Each(s.Tasks, func(t plan.Task) string { return t.Type }), Open: s.Open, After: s.After}
	slices.Sort(form.Types)
	form.Types = slices.Compact(form.Types)
	if s.Split != nil {
		form.Split = s.Split.Type
	}
	return form
}

// BatchQuery is a request for a page of batches.
type BatchQuery struct {
	State  string `query:"state" flag:"STATE" enum:"running,paused,stopped,done,cancelled" doc:"Only batches in this state."`
	Limit  int    `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"1000" doc:"At most so many batches."`
	Before int64  `query:"before" flag:"ID" minimum:"0" doc:"Only smaller ids: the value next of the page before."`
}

// ListBatches reads a page of batches, the newest first, and the id before which the next page begins, which is nil on
// the last page.
func ListBatches(ctx context.Context, b *app.Backend, r BatchQuery) ([]Listed[Batch, app.Batch], *holdfast.BatchID, error) {
	var states []store.PlanState
	if r.State != "" {
		states = append(states, store.PlanState(r.State))
	}
	found, err := b.Batches(ctx, states, holdfast.BatchID(r.Before), r.Limit+1)
	page, next := listed(found, r.Limit, BatchOf, func(b app.Batch) holdfast.BatchID { return b.ID })
	return page, next, err
}

// BatchTask is the part of a request that describes a task of a batch.
type BatchTask ScheduleTask

// task returns the task, which may be incomplete.
func (t BatchTask) task() (to plan.Task, err error) {
	return to, ScheduleTask(t).apply(&to)
}

// BatchSettings is the part of a request for a new batch that does not describe its tasks.
type BatchSettings struct {
	Name        string `json:"name,omitempty" flag:"NAME" doc:"If a batch with this name has not ended, nothing starts, and the answer is that batch."`
	AllowFailed string `json:"allow_failed,omitempty" flag:"N|P%" doc:"With so many failed subtasks in a stage, the batch goes on: a number, or a share such as 1%; default 0."`
	Window      int    `json:"window,omitempty" flag:"N" minimum:"1" doc:"A split waits at so many open subtasks; default 20000."`
	Note        string `json:"note,omitempty" flag:"TEXT" doc:"A text for people, of at most 1000 bytes."`
	Reason      string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log."`
}

// NewBatch is a request to start a batch. It has a type, stages, or open.
type NewBatch struct {
	Type   string          `json:"type,omitempty" doc:"The stages are a split of the type TYPE.split, and a reduce of the type TYPE.reduce."`
	Input  json.RawMessage `json:"input,omitempty" doc:"The payload of the split."`
	Queue  string          `json:"queue,omitempty" doc:"The queue of the split and the reduce; default the queues of their types."`
	Stages []NewStage      `json:"stages,omitempty" doc:"The stages, one after another."`
	Open   bool            `json:"open,omitempty" doc:"The request is followed by pages of subtasks, and then by a seal."`
	Then   *BatchTask      `json:"then,omitempty" doc:"A task that runs after all others."`
	BatchSettings
}

// NewStage is a stage of a new batch. Its tasks run at the same time.
type NewStage struct {
	Tasks []BatchTask `json:"tasks,omitempty"`
	Split *BatchTask  `json:"split,omitempty" doc:"A task that stores more subtasks of the stage while it runs."`
	After bool        `json:"after,omitempty" doc:"The tasks of the stage follow the subtasks, and are none themselves. None of them may fail."`
}

// Spec returns the batch. It is not checked completely.
func (r NewBatch) Spec() (spec plan.Batch, err error) {
	given := 0
	for _, is := range []bool{r.Type != "", len(r.Stages) > 0, r.Open} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return spec, fmt.Errorf("%w: a batch has a type, or stages, or is open; give one of them", holdfast.ErrInvalid)
	case r.Type == "" && (r.Input != nil || r.Queue != ""):
		return spec, fmt.Errorf("%w: input and queue need a type", holdfast.ErrInvalid)
	case r.Type != "":
		input := r.Input
		if input == nil {
			input = json.RawMessage("null")
		}
		split := plan.Task{Type: r.Type + ".split", Payload: input, Queue: r.Queue}
		spec.Stages = []plan.Stage{{Split: &split}, {Tasks: []plan.Task{{Type: r.Type + ".reduce", Queue: r.Queue}}, After: true}}
	case r.Open:
		spec.Stages = []plan.Stage{{Open: true}}
	}
	for i, stage := range r.Stages {
		made, err := stage.stage()
		if err != nil {
			return spec, fmt.Errorf("stage %d: %w", i+1, err)
		}
		spec.Stages = append(spec.Stages, made)
	}
	if r.Then != nil {
		then, err := r.Then.task()
		if err != nil {
			return spec, fmt.Errorf("then: %w", err)
		}
		spec.Stages = append(spec.Stages, plan.Stage{Tasks: []plan.Task{then}, After: true})
	}
	if r.AllowFailed != "" {
		if spec.Allowed, err = plan.ParseAllowed(r.AllowFailed); err != nil {
			return spec, err
		}
	}
	spec.Window, spec.Note = r.Window, r.Note
	return spec, nil
}

// stage returns the stage.
func (r NewStage) stage() (to plan.Stage, err error) {
	to.After = r.After
	for _, described := range r.Tasks {
		task, err := described.task()
		if err != nil {
			return to, err
		}
		to.Tasks = append(to.Tasks, task)
	}
	if r.Split != nil {
		split, err := r.Split.task()
		to.Split = &split
		return to, err
	}
	return to, nil
}

// StartBatch starts a batch. If a batch with the name has not ended, it changes nothing and returns that batch and false.
func StartBatch(ctx context.Context, b *app.Backend, by store.Actor, r NewBatch) (Batch, app.Batch, bool, error) {
	by.Reason = r.Reason
	spec, err := r.Spec()
	if err != nil {
		return Batch{}, app.Batch{}, false, err
	}
	started, isNew, err := b.StartBatch(ctx, by, r.Name, spec)
	if err != nil {
		return Batch{}, app.Batch{}, false, err
	}
	return BatchOf(started), started, isNew, nil
}

// GetBatch returns a batch, and what it was made from.
func GetBatch(ctx context.Context, b *app.Backend, id holdfast.BatchID) (Batch, app.Batch, error) {
	found, err := b.Batch(ctx, id)
	if err != nil {
		return Batch{}, found, err
	}
	return BatchOf(found), found, nil
}

// BatchChange changes a batch, such as the method PauseBatch of a backend.
type BatchChange func(ctx context.Context, by store.Actor, id holdfast.BatchID, checks ...func(*app.Batch) error) (before *app.Batch, after app.Batch, err error)

// BatchOperation is the answer to a request that starts an operation on the tasks of a batch.
type BatchOperation struct {
	Batch     Batch     `json:"batch"`
	Operation Operation `json:"operation"`
}

// CancelBatch cancels a batch, and starts an operation that cancels its tasks.
func CancelBatch(ctx context.Context, b *app.Backend, by store.Actor, id holdfast.BatchID, checks ...func(*app.Batch) error) (BatchOperation, app.Batch, error) {
	_, after, o, err := b.CancelBatch(ctx, by, id, checks...)
	return batchOperation(after, o, err)
}

// RetryBatch starts an operation that retries the dead tasks of a batch.
func RetryBatch(ctx context.Context, b *app.Backend, by store.Actor, id holdfast.BatchID, checks ...func(*app.Batch) error) (BatchOperation, app.Batch, error) {
	before, o, err := b.RetryBatch(ctx, by, id, checks...)
	return batchOperation(before, o, err)
}

func batchOperation(b app.Batch, o store.Operation, err error) (BatchOperation, app.Batch, error) {
	if err != nil {
		return BatchOperation{}, b, err
	}
	return BatchOperation{BatchOf(b), OperationOf(o)}, b, nil
}

// BatchResult is the JSON form of a subtask with its output.
type BatchResult struct {
	ID      holdfast.TaskID `json:"id"`
	State   holdfast.State  `json:"state"`
	Payload json.RawMessage `json:"payload"`
	Output  json.RawMessage `json:"output,omitempty" doc:"Missing if the handler has set none."`
	Error   string          `json:"error,omitempty" doc:"The error of the last failed attempt."`
}

// BatchResultOf returns the JSON form of a result.
func BatchResultOf(r plan.Result) BatchResult {
	form := BatchResult{ID: r.Task.ID, State: r.Task.State, Payload: r.Task.Payload, Output: r.Output, Error: r.Task.LastError}
	if len(bytes.TrimSpace(form.Payload)) == 0 {
		form.Payload = json.RawMessage("null")
	}
	return form
}

// BatchResultQuery is a request for a page of results.
type BatchResultQuery struct {
	After string `query:"after" doc:"The value next of the page before."`
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"At most so many results. A page with much data has fewer."`
}

// BatchResultPage is a page of results.
type BatchResultPage struct {
	Results []BatchResult `json:"results"`
	Next    *string       `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

// maxResultBytes is the size of the data of a page after which the page ends.
const maxResultBytes = 4 << 20

// BatchResults reads a page of the results of a batch. It returns an ErrNotFound if all of them were deleted.
func BatchResults(ctx context.Context, b *app.Backend, id holdfast.BatchID, r BatchResultQuery) (BatchResultPage, error) {
	page := BatchResultPage{Results: []BatchResult{}}
	place, err := parseResultCursor(r.After)
	if err != nil {
		return page, &MemberError{"after", err}
	}
	batch, err := b.Batch(ctx, id)
	if err != nil {
		return page, err
	}
	size, last := 0, ""
	for result, err := range b.BatchResultsAfter(ctx, id, place, r.Limit+1) { // one more shows that there is a next page
		if err != nil {
			return page, err
		}
		if len(page.Results) == r.Limit || size > maxResultBytes {
			page.Next = &last
			return page, nil
		}
		page.Results = append(page.Results, BatchResultOf(result))
		size += len(result.Task.Payload) + len(result.Output)
		last = resultCursor(result.Cursor)
	}
	if r.After == "" && len(page.Results) == 0 {
		return page, MissingResults(batch, 0)
	}
	return page, nil
}

func resultCursor(c plan.ResultCursor) string { return fmt.Sprintf("%d-%s", c.Chunk, c.Task) }

func parseResultCursor(text string) (c plan.ResultCursor, err error) {
	if text == "" {
		return c, nil
	}
	chunk, task, _ := strings.Cut(text, "-")
	if c.Chunk, err = strconv.Atoi(chunk); err == nil && c.Chunk >= 0 {
		c.Task, err = holdfast.ParseTaskID(task)
	}
	if err != nil || c.Chunk < 0 {
		return c, fmt.Errorf("%w: %.60q is not a cursor; give the value next of the page before", holdfast.ErrInvalid, text)
	}
	return c, nil
}

// MissingResults returns an ErrNotFound if fewer results of a batch were found than it had subtasks, because janitors
// have deleted subtasks. It does not count those that a person has deleted.
func MissingResults(b app.Batch, found int64) error {
	p := b.Progress
	counts := p.Subtasks
	for i, stage := range b.Spec.Stages {
		if i > 0 && i <= p.Stage && !stage.After { // the counts include other stages
			if found > 0 {
				return nil
			}
			break
		}
	}
	if missing := counts.Total - counts.Gone - found; missing > 0 {
		return fmt.Errorf("%w: %d of %d subtasks of batch %s were deleted; after the end of a batch, its subtasks are kept as long as all other tasks",
			holdfast.ErrNotFound, missing, counts.Total, b.ID)
	}
	return nil
}

// PushedPage is the answer to a page of subtasks.
type PushedPage struct {
	Batch     holdfast.BatchID `json:"batch"`
	Pages     int              `json:"pages" doc:"How many pages the batch has got, which is the number of the next page."`
	Total     int64            `json:"total" doc:"How many subtasks are stored."`
	Duplicate int64            `json:"duplicate" doc:"How many subtasks were not stored, because their unique keys were taken."`
}

// PushBatch stores a page of subtasks in an open batch. number is the number of pages before it. A page that is stored
// already changes nothing.
func PushBatch(ctx context.Context, b *app.Backend, id holdfast.BatchID, number int, tasks []holdfast.NewTask) (PushedPage, error) {
	p, err := b.PushBatch(ctx, id, number, tasks)
	return PushedPage{id, p.Pages, p.Subtasks.Total, p.Subtasks.Duplicate}, err
}
