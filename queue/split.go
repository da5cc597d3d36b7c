package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Split adds subtasks to a batch. It is not safe for concurrent use.
type Split[P any] struct{ to *splitter }

// Cursor returns the cursor of the last subtask of the pages that are stored, or "" if there are none. The function Split
// of a batch adds only the items after the cursor with which it begins.
func (s *Split[P]) Cursor() string { return s.to.cursor }

// Add adds a subtask. Subtasks are stored in pages of up to 1,000, or as many as the window of the batch allows,
// together with the cursor of the last one. The last page is stored when the function Split returns nil. So each
// subtask is stored exactly once, if the function adds the same items in the same order in each attempt.
//
// A page is stored while the function adds the subtasks of the next one. So a later call of Add returns its error, and
// at most two pages are in memory. While the window of the batch is full, Add waits up to two seconds. Then it ends the
// attempt, so that it holds no executor: it returns an error, and the next attempt continues after Cursor. Such an
// attempt does not count as a failure. The same happens while the batch is paused or stopped, and while another
// transaction holds the unique key of a subtask, or has stored ordered tasks of its key. If the batch accepts no more
// subtasks, because a person has cancelled it, Add returns an error, and the task ends. The function must return the
// error of Add; after it, all calls of Add return it.
//
// Add returns ErrInvalid, and adds nothing, if the task can never be accepted. A cursor has at most 4,000 bytes. The
// options are those of Enqueue. If a task has the unique key of a subtask already, the subtask is counted as a
// duplicate and is not stored.
func (s *Split[P]) Add(ctx context.Context, payload P, cursor string, opts ...TaskOption) error {
	if s.to.err != nil {
		return s.to.err
	}
	task, err := NewTask{s.to.taskType, payload, opts}.Complete()
	if err == nil {
		task, err = s.to.client.complete(task)
	}
	if err == nil {
		err = checkCursor(cursor)
	}
	if err != nil {
		return fmt.Errorf("add subtask: %w", err)
	}
	return s.to.add(ctx, task, cursor)
}

// complete validates a task and sets the defaults of its type, as Enqueue does.
func (c *Client) complete(task holdfast.NewTask) (holdfast.NewTask, error) {
	err := task.Complete(withoutLimits{c}.For(task.Type), c.backend.Config.Producer.MaxPayload, c.backend.Check[task.Type])
	return task, err
}

// maxCursor is the maximum size of a cursor in bytes.
const maxCursor = 4000

func checkCursor(cursor string) error {
	switch {
	case len(cursor) > maxCursor:
		return fmt.Errorf("%w: the cursor has %d bytes, the limit is %d", holdfast.ErrInvalid, len(cursor), maxCursor)
	case !utf8.ValidString(cursor) || strings.ContainsRune(cursor, 0):
		return fmt.Errorf("%w: the cursor must be UTF-8 without NUL", holdfast.ErrInvalid)
	}
	return nil
}

const (
	// maxPageBytes is the size of the payloads of a page from which on it is stored.
	maxPageBytes = 4 << 20
	// roomPoll is the time between two checks for room by an attempt that waits, and roomWait the longest time that it
	// waits.
	roomPoll = 20 * time.Millisecond
	roomWait = 2 * time.Second
	// An attempt that does not wait ends, and the next one begins when there may be room, after firstRoom if that
	// cannot be estimated. minRoom and maxRoom limit the estimate.
	minRoom, firstRoom, maxRoom = 200 * time.Millisecond, time.Second, 10 * time.Second
	// pausedWait is the time between two attempts while the batch is paused or stopped.
	pausedWait = 5 * time.Second
	// heldWait is the time between two attempts while another transaction holds a key of a subtask, or the store is not
	// available. The store has waited before.
	heldWait = time.Second
)

// splitter is an attempt of the task that splits a batch.
type splitter struct {
	client   *Client
	taskType string // of the subtasks
	batch    store.ID
	fence    store.Fence
	window   int64
	limit    int // of the subtasks of a page

	number  int                // of the pages that are stored
	cursor  string             // of the last of them
	storing chan error         // gets the result of the page that is being stored; nil if there is none
	next    string             // cursor of that page
	tasks   []holdfast.NewTask // of the page after it
	bytes   int                // of the payloads of tasks
	last    string             // cursor of the last of tasks
	err     error              // the attempt must end
}

// errSplitEnded means that the batch accepts no more subtasks, so that the split has nothing more to do.
var errSplitEnded = errors.New("the split ends")

// splitPolicy returns the policy for an error of a split. A split that waits for its subtasks is deferred as often as
// necessary, and its attempts need no records. Its deferrals are counted, so they must not use up those of other
// reasons.
func splitPolicy(policy holdfast.Policy, err error) holdfast.Policy {
	policy.MaxDeferrals = math.MaxInt32
	if errors.Is(err, plan.ErrFull) || errors.Is(err, plan.ErrPaused) {
		policy.KeepAttempts = holdfast.KeepNone
	}
	return policy
}

// split calls run for an attempt of the task that splits a batch.
func (c *Client) split(ctx context.Context, task holdfast.Task, taskType string, run func(*splitter) error) error {
	to, err := c.beginSplit(ctx, task, taskType)
	if err == nil {
		if err = run(to); err == nil {
			to.flush(ctx)
		}
		if to.wait(); to.err != nil { // whatever run has made of it
			err = to.err
		}
	}
	if errors.Is(err, errSplitEnded) {
		return nil
	}
	return err
}

// beginSplit begins an attempt. It ends the attempt at once if the batch has no room.
func (c *Client) beginSplit(ctx context.Context, task holdfast.Task, taskType string) (*splitter, error) {
	s, err := stageOf(ctx, c.backend.Store, task)
	if err == nil && (s.batch.Stages[s.stage].Split == nil || s.n != len(s.batch.Stages[s.stage].Tasks)) {
		err = fmt.Errorf("%w: task %s splits no batch", holdfast.ErrInvalid, task.ID)
	}
	if err != nil {
		return nil, invalidIsPermanent(err)
	}
	to := &splitter{
		client: c, taskType: taskType, batch: s.id, fence: store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker},
		window: int64(cmp.Or(s.batch.Window, plan.DefaultWindow)), number: s.progress.Pages, cursor: s.progress.Cursor,
	}
	to.limit = int(min(to.window, plan.MaxChunk))
	p := &s.progress
	switch {
	case s.state.Ended(), p.Stage != s.stage, p.Sealed, p.Cancelling:
		err = plan.ErrSealed
	case s.state != store.PlanRunning:
		err = plan.ErrPaused
	case p.Now.Open() >= to.window:
		err = plan.ErrFull
	}
	if err != nil {
		return nil, to.outcome(err, p)
	}
	return to, nil
}

// add adds a subtask to the page, and begins to store the page if it is full.
func (s *splitter) add(ctx context.Context, task holdfast.NewTask, cursor string) error {
	s.tasks, s.last = append(s.tasks, task), cursor
	if s.bytes += len(task.Payload); len(s.tasks) >= s.limit || s.bytes >= maxPageBytes {
		s.flush(ctx)
	}
	return s.err
}

// flush begins to store the page when the one before it is stored.
func (s *splitter) flush(ctx context.Context) {
	if s.wait(); s.err != nil || len(s.tasks) == 0 {
		return
	}
	page := plan.Page{Tasks: s.tasks, Number: s.number, Cursor: s.last, Split: &s.fence}
	s.next, s.tasks, s.bytes, s.storing = s.last, nil, 0, make(chan error, 1)
	go func(stored chan<- error) { stored <- s.store(ctx, page) }(s.storing)
}

// wait waits until no page is being stored. If that failed, it sets err.
func (s *splitter) wait() {
	if s.storing == nil {
		return
	}
	if s.err = <-s.storing; s.err == nil {
		s.number, s.cursor = s.number+1, s.next
	}
	s.storing = nil
}

// store stores a page. If it fails, the attempt must end. It runs beside the function that splits, and so reads only what
// that function leaves as it is.
func (s *splitter) store(ctx context.Context, page plan.Page) error {
	began := time.Now()
	for {
		progress, err := s.client.backend.PushPage(ctx, holdfast.BatchID(s.batch), page)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, plan.ErrFull) || !s.client.hasExecutors() || s.untilRoom(&progress) > roomWait-time.Since(began):
			return s.outcome(err, &progress)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(roomPoll):
		}
	}
}

// hasExecutors reports whether this process may run subtasks while a split waits.
func (c *Client) hasExecutors() bool {
	return c.backend.Config.HasRole(configs.RoleWorker) && c.backend.Config.Worker.Concurrency > 1
}

// untilRoom estimates how long it takes until half of the window is free.
func (s *splitter) untilRoom(p *plan.BatchProgress) time.Duration {
	if p.Rate <= 0 {
		return firstRoom
	}
	excess := float64(p.Now.Open() - s.window/2)
	return time.Duration(min(max(excess/p.Rate*float64(time.Second), float64(minRoom)), float64(maxRoom)))
}

// outcome returns the error with which the attempt ends.
func (s *splitter) outcome(err error, p *plan.BatchProgress) error {
	switch {
	case errors.Is(err, plan.ErrFull):
		return holdfast.Defer(s.untilRoom(p), err)
	case errors.Is(err, plan.ErrPaused):
		return holdfast.Defer(pausedWait, err)
	case errors.Is(err, plan.ErrSealed):
		return fmt.Errorf("%w: %w", errSplitEnded, err)
	case errors.Is(err, store.ErrFenced):
		return fmt.Errorf("%w: %w", holdfast.ErrLeaseLost, err)
	}
	err = fmt.Errorf("store subtasks of batch %d: %w", int64(s.batch), err)
	if errors.Is(err, holdfast.ErrUnavailable) { // the store, or a *store.KeyHeldError: the split has no fault
		return holdfast.Defer(heldWait, err)
	}
	return err
}
