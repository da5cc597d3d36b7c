package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Batch is a list of stages. The tasks of a stage run at the same time. When all of them have ended, and not too many
// have failed, the engine stores the tasks of the next stage. So a chain is a batch with one task in each stage.
type Batch struct {
	Stages  []Stage `json:"stages"`
	Allowed Allowed `json:"allow_failed,omitzero"` // the failed subtasks of a stage with which the batch goes on
	// Window is the number of open subtasks at which a split waits; 0 means DefaultWindow.
	Window int    `json:"window,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Stage is a part of a batch.
type Stage struct {
	// Tasks are stored when the stage begins.
	Tasks []Task `json:"tasks,omitempty"`
	// Split is a task that stores more subtasks of the stage while it runs.
	Split *Task `json:"split,omitempty"`
	// Open means that programs store more subtasks of the stage, until they seal the batch.
	Open bool `json:"open,omitempty"`
	// After means that the tasks of the stage are not subtasks: they reduce the outputs, or follow the batch.
	After bool `json:"after,omitempty"`
}

// Limits of batches.
const (
	DefaultWindow = 20_000
	MaxStages     = 100
	MaxChunk      = 1000 // subtasks that are stored together, and tasks with which a stage begins
	// MaxBatchSize is the maximum size of a batch as JSON in bytes, because each step reads all of it. A batch with one
	// larger payload can be as large as that payload.
	MaxBatchSize = 1 << 20
	// PushLimit is how long an open batch waits for more subtasks before it stops.
	PushLimit = 24 * time.Hour
)

// Allowed is how many subtasks of a stage may fail: a number, or a share of all subtasks.
type Allowed struct {
	Count   int64
	Percent float64
}

// ParseAllowed parses a number such as 10, or a share such as 0.5%.
func ParseAllowed(text string) (a Allowed, err error) {
	if share, ok := strings.CutSuffix(text, "%"); ok {
		if a.Percent, err = ParsePercent(share); err == nil {
			return a, nil
		}
	} else if a.Count, err = strconv.ParseInt(text, 10, 64); err == nil && a.Count >= 0 && digits(text) {
		return a, nil
	}
	return Allowed{}, fmt.Errorf("%w: the allowed failures %.100q must be a number such as 10, or a share such as 1%%", holdfast.ErrInvalid, text)
}

// ParsePercent parses a percentage from 0 to 100 with decimals, such as 0.5. Package strconv accepts other forms too,
// such as 1e1, 0x1p3 and NaN, which a person does not mean.
func ParsePercent(text string) (float64, error) {
	whole, decimals, dot := strings.Cut(text, ".")
	percent, err := strconv.ParseFloat(text, 64)
	if err != nil || !digits(whole) || dot && !digits(decimals) || percent > 100 {
		return 0, fmt.Errorf("%w: %.100q is not a percentage from 0 to 100, such as 0.5", holdfast.ErrInvalid, text)
	}
	return percent, nil
}

func digits(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

// String returns the form that ParseAllowed parses.
func (a Allowed) String() string {
	if a.Percent > 0 {
		return strconv.FormatFloat(a.Percent, 'f', -1, 64) + "%"
	}
	return strconv.FormatInt(a.Count, 10)
}

// MarshalText implements encoding.TextMarshaler.
func (a Allowed) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Allowed) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAllowed(string(text))
	return err
}

// of returns how many of total subtasks may fail.
func (a Allowed) of(total int64) int64 {
	return max(a.Count, int64(math.Floor(float64(total)*a.Percent/100)))
}

// Validate returns an ErrInvalid that describes the first problem of the batch, or nil. maxPayload is in bytes.
func (b *Batch) Validate(maxPayload int) error {
	switch {
	case len(b.Stages) == 0:
		return invalid("a batch needs a stage")
	case len(b.Stages) > MaxStages:
		return invalid("a batch with %d stages has more than %d", len(b.Stages), MaxStages)
	case b.Window < 0:
		return invalid("the window %d must be at least 1, or 0 for the default", b.Window)
	case len(b.Note) > maxNote:
		return invalid("the note has %d bytes, the limit is %d", len(b.Note), maxNote)
	}
	for i := range b.Stages {
		stage := &b.Stages[i]
		tasks := stage.Tasks
		if stage.Split != nil {
			tasks = append(slices.Clone(tasks), *stage.Split)
		}
		switch {
		case len(stage.Tasks) > MaxChunk:
			return invalid("stage %d begins with %d tasks, the limit is %d", i+1, len(stage.Tasks), MaxChunk)
		case len(tasks) == 0 && !stage.Open:
			return invalid("stage %d has no task", i+1)
		case stage.Open && (i > 0 || stage.Split != nil):
			return invalid("programs can store subtasks only in the first stage, and only without a split")
		}
		for _, task := range tasks {
			if err := task.New().Validate(maxPayload); err != nil {
				return fmt.Errorf("stage %d: %w", i+1, err)
			}
		}
	}
	const rest = 16 << 10 // of a batch with one payload
	if size, limit := len(encode(b)), max(MaxBatchSize, maxPayload+rest); size > limit {
		return invalid("the batch has %d bytes, the limit is %d; let a split store its tasks, or push them to an open batch", size, limit)
	}
	return nil
}

func (b *Batch) window() int64 {
	if b.Window > 0 {
		return int64(b.Window)
	}
	return DefaultWindow
}

// unnamed begins the names of batches without a name of their own, because the names of open plans are unique.
const unnamed = "~"

// BatchName returns the name of a batch, or "" if it has none of its own.
func BatchName(p store.Plan) string {
	if strings.HasPrefix(p.Name, unnamed) {
		return ""
	}
	return p.Name
}

// fixed reports whether a stage gets no more tasks than those with which it begins.
func (b *Batch) fixed(stage int) bool {
	return stage >= len(b.Stages) || b.Stages[stage].Split == nil && !b.Stages[stage].Open
}

// BatchProgress is how far a batch is.
type BatchProgress struct {
	Stage  int  `json:"stage"`            // the index of the stage that runs
	Begun  bool `json:"begun,omitempty"`  // its tasks are stored
	Sealed bool `json:"sealed,omitempty"` // it gets no more tasks
	Chunks int  `json:"chunks,omitempty"` // its items so far
	// Steps is the number of steps of engines. A page and a change by a person do not count.
	Steps int64 `json:"steps,omitempty"`
	// Pages is the number of pages of subtasks that a split or programs have stored in the stage. Cursor belongs to the
	// last page of a split. PushedAt is the time of the last page.
	Pages    int       `json:"pages,omitempty"`
	Cursor   string    `json:"cursor,omitempty"`
	PushedAt time.Time `json:"pushed_at,omitzero"`
	// Taken is the number of tasks with which the stage should have begun, but whose unique keys other tasks have.
	Taken int `json:"taken,omitempty"`
	// SplitFailed means that the split has ended, and is not done.
	SplitFailed bool   `json:"split_failed,omitempty"`
	SplitGone   bool   `json:"split_gone,omitempty"` // a person has deleted the task of the split
	Cancelling  bool   `json:"cancelling,omitempty"`
	Accepted    int64  `json:"accepted,omitempty"` // the failures of the stage that a person has accepted
	Stopped     string `json:"stopped,omitempty"`  // why the batch is stopped
	Now         Counts `json:"now"`                // the tasks of the stage, without its split
	Subtasks    Counts `json:"subtasks"`           // the subtasks of all stages
	// Rate is how many tasks have ended a second, lately. RateAt is when it was computed, and RateEnded how many had
	// ended then.
	Rate      float64   `json:"rate,omitempty"`
	RateAt    time.Time `json:"rate_at,omitzero"`
	RateEnded int64     `json:"rate_ended,omitempty"`
}

// Counts are numbers of tasks.
type Counts struct {
	Total     int64 `json:"total"` // stored tasks; duplicates are not among them
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"` // also archived ones
	Gone      int64 `json:"gone"`      // deleted by a person
	Duplicate int64 `json:"duplicate"` // not stored, because their unique keys were taken
}

// Ended returns how many tasks wait for nothing but a person.
func (c Counts) Ended() int64 { return c.Done + c.Failed() }

// Failed returns how many tasks have ended, and are not done.
func (c Counts) Failed() int64 { return c.Dead + c.Cancelled + c.Gone }

// Open returns how many tasks have not ended.
func (c Counts) Open() int64 { return c.Total - c.Ended() }

// add adds the difference between two counts of some tasks.
func (c *Counts) add(before, after Counts) {
	c.Total += after.Total - before.Total
	c.Done += after.Done - before.Done
	c.Dead += after.Dead - before.Dead
	c.Cancelled += after.Cancelled - before.Cancelled
	c.Gone += after.Gone - before.Gone
	c.Duplicate += after.Duplicate - before.Duplicate
}

// ReadBatch returns the batch of a plan and its progress.
func ReadBatch(p store.Plan) (b Batch, progress BatchProgress, err error) {
	if err := decode(p.Spec, &b); err != nil {
		return b, progress, err
	}
	return b, progress, decode(p.Progress, &progress)
}

// batchPrefix begins the unique keys of the tasks with which stages begin: batch/ID/STAGE/NUMBER/TIME. The time, in
// microseconds, is when the batch was created. Another store, whose tasks people have imported, may have had a batch with
// the same id.
const batchPrefix = "batch/"

// StageOrigin returns the batch, the stage and the number of a task with which a stage begins, from its unique key. ok is
// false if the key has another form. A program can store a task with such a key, too.
func StageOrigin(unique string) (batch store.ID, stage, n int, ok bool) {
	var id int64
	count, err := fmt.Sscanf(unique, batchPrefix+"%d/%d/%d", &id, &stage, &n)
	return store.ID(id), stage, n, err == nil && count == 3
}

// stageTasks returns the tasks with which a stage begins. The split is the last one.
func (b *Batch) stageTasks(p *store.Plan, stage int) (tasks []holdfast.NewTask) {
	s := &b.Stages[stage]
	for _, task := range s.Tasks {
		tasks = append(tasks, task.New())
	}
	if s.Split != nil {
		tasks = append(tasks, s.Split.New())
	}
	for i := range tasks {
		tasks[i].Unique = fmt.Sprintf("%s%d/%d/%d/%d", batchPrefix, int64(p.ID), stage, i, p.CreatedAt.UnixMicro())
	}
	return tasks
}
