package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// numbers is a batch type whose split adds the numbers from 1 to the input, and whose subtasks square them. The fields
// may be set before the client runs.
type numbers struct {
	fail     func(task holdfast.Task, n int) error // called by Map; may be nil
	splitEnd func(attempt int, n int) error        // called by Split before it adds n; may be nil
	noReduce bool

	mu      sync.Mutex
	cursors []string // with which the attempts of the split have begun
	ran     map[int]int
	splits  int
	reduced atomic.Int32
}

// sum is what a batch is reduced to.
type sum struct{ Items, Failed, Sum int }

func (n *numbers) handle(w *fixture, q *queue.Client, opts ...queue.TypeOption) {
	w.Helper()
	n.ran = make(map[int]int)
	batch := queue.Batch[int, int, int]{
		Split: func(ctx context.Context, last int, to *queue.Split[int]) error {
			n.mu.Lock()
			n.splits++
			attempt := n.splits
			n.cursors = append(n.cursors, to.Cursor())
			n.mu.Unlock()
			first, _ := strconv.Atoi(to.Cursor())
			for i := first + 1; i <= last; i++ {
				if n.splitEnd != nil {
					if err := n.splitEnd(attempt, i); err != nil {
						return err
					}
				}
				if err := to.Add(ctx, i, strconv.Itoa(i)); err != nil {
					return fmt.Errorf("number %d: %w", i, err)
				}
			}
			return nil
		},
		Map: func(_ context.Context, task holdfast.Task, number int) (int, error) {
			n.mu.Lock()
			n.ran[number]++
			n.mu.Unlock()
			if n.fail != nil {
				if err := n.fail(task, number); err != nil {
					return 0, err
				}
			}
			return number * number, nil
		},
		Reduce: func(ctx context.Context, items *queue.Results[int, int]) (any, error) {
			n.reduced.Add(1)
			var s sum
			var last int
			if err := items.Input(ctx, &last); err != nil {
				return nil, err
			}
			for item, err := range items.All(ctx) {
				if err != nil {
					return nil, err
				}
				if s.Items++; item.Task.State != holdfast.Done {
					s.Failed++
				} else if item.Output != item.Payload*item.Payload || item.Task.Batch != items.ID() {
					return nil, fmt.Errorf("subtask %+v", item)
				}
				s.Sum += item.Output
			}
			if s.Items != last {
				return nil, fmt.Errorf("the input is %d, and there are %d subtasks", last, s.Items)
			}
			return s, nil
		},
	}
	if n.noReduce {
		batch.Reduce = nil
	}
	w.must(queue.HandleBatch(q, "square", batch, opts...))
}

// runs returns how often each subtask has run.
func (n *numbers) runs() map[int]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.ran)
}

// splitAttempts returns the cursors with which the attempts of the split have begun.
func (n *numbers) splitAttempts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cursors)
}

// squares returns the sum of the squares of the numbers up to n.
func squares(n int) int { return n * (n + 1) * (2*n + 1) / 6 }

// waitBatch waits until a batch has ended or waits for a person.
func (w *fixture) waitBatch(q *queue.Client, id holdfast.BatchID, want queue.BatchState) queue.BatchStatus {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), slow.Patience())
	defer cancel()
	status, err := q.WaitBatch(ctx, id)
	if err != nil || status.State != want {
		w.Fatalf("batch %+v, want state %s: %v", status, want, err)
	}
	return status
}

// awaitBatch waits until a batch has a state, whatever state it has now.
func (w *fixture) awaitBatch(q *queue.Client, id holdfast.BatchID, reached func(queue.BatchStatus) bool) queue.BatchStatus {
	w.Helper()
	end := time.Now().Add(slow.Patience())
	for {
		status, err := q.Batch(w.Context(), id)
		w.must(err)
		if reached(status) {
			return status
		}
		if time.Now().After(end) {
			w.Fatalf("batch %+v", status)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A split fails after some pages. Every third subtask fails once.
func TestBatch(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		const last = manySubtasks
		n := numbers{
			fail: func(task holdfast.Task, number int) error {
				if number%3 == 0 && task.Failures == 0 {
					return errors.New("failed once")
				}
				return nil
			},
			splitEnd: func(attempt, number int) error {
				if attempt == 1 && number == last-100 {
					return errors.New("the source is down")
				}
				return nil
			},
		}
		n.handle(w, q)
		id, err := q.StartBatch(w.Context(), "square", last, queue.BatchName("squares"), queue.BatchNote("a test"))
		w.must(err)
		if again, err := q.StartBatch(w.Context(), "square", last, queue.BatchName("squares")); again != id || err != nil {
			t.Errorf("a second batch with the name: %s, %v", again, err)
		}
		w.run(q)
		status := w.waitBatch(q, id, queue.BatchDone)
		want := queue.BatchCounts{Total: last, Done: last}
		if status.Subtasks != want || status.Name != "squares" || status.Note != "a test" || status.Stages != 2 || status.Stage != 1 ||
			!status.Sealed || status.EndedAt.IsZero() || status.CreatedAt.IsZero() {
			t.Errorf("status %+v", status)
		}
		stored := strconv.Itoa((last - 100) / plan.MaxChunk * plan.MaxChunk)
		if cursors := n.splitAttempts(); len(cursors) != 2 || cursors[0] != "" || cursors[1] != stored {
			t.Errorf("the attempts of the split began at %q", cursors)
		}
		if s, err := queue.ReducedOf[sum](w.Context(), q, id); err != nil || s != (sum{Items: last, Sum: squares(last)}) {
			t.Errorf("reduced to %+v, %v", s, err)
		}
		if n.reduced.Load() != 1 || len(n.runs()) != last {
			t.Errorf("%d reduces; %d numbers", n.reduced.Load(), len(n.runs()))
		}
		items := 0
		for item, err := range queue.ResultsOf[int, int](w.Context(), q, id) {
			w.must(err)
			if items++; item.Payload != items || item.Output != items*items {
				t.Fatalf("subtask %d: %+v", items, item)
			}
		}
		if items != last {
			t.Errorf("%d results", items)
		}
		if again, err := q.StartBatch(w.Context(), "square", 1, queue.BatchName("squares")); again == id || err != nil {
			t.Errorf("after the end, a batch with the name: %s, %v", again, err)
		}
	})
}

// A page is stored while the split adds the subtasks of the next one.
func TestASplitAddsWhileAPageIsStored(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	added := make(chan struct{})
	queue.Backend(q).Store = &holdPages{Store: queue.Backend(q).Store, until: added}
	n := numbers{splitEnd: func(_, number int) error {
		if number == plan.MaxChunk+100 {
			close(added)
		}
		return nil
	}}
	n.handle(w, q)
	const last = plan.MaxChunk + 200
	id, err := q.StartBatch(w.Context(), "square", last)
	w.must(err)
	w.run(q)
	if status := w.waitBatch(q, id, queue.BatchDone); status.Subtasks.Done != last {
		t.Errorf("status %+v", status)
	}
}

// holdPages is a store that stores no page of a split before a channel is closed.
type holdPages struct {
	store.Store
	until <-chan struct{}
}

func (h *holdPages) StepPlan(
	ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem),
) (store.Plan, error) {
	if step.Fence != nil {
		<-h.until
	}
	return h.Store.StepPlan(ctx, step, finish)
}

// With one executor and a small window, the split ends its attempts while its subtasks run, and none counts.
func TestASplitHoldsNoExecutor(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open(queue.Concurrency(1), queue.Set("types.square.split.retry.max_deferrals", "0"))
		var n numbers
		n.handle(w, q, queue.MaxAttempts(1))
		id, err := q.StartBatch(w.Context(), "square", 35, queue.Window(10))
		w.must(err)
		w.run(q)
		if status := w.waitBatch(q, id, queue.BatchDone); status.Subtasks != (queue.BatchCounts{Total: 35, Done: 35}) {
			t.Errorf("status %+v", status)
		}
		split := w.tasksOf(q, "square.split")[0]
		if split.State != holdfast.Done || split.Failures != 0 || split.Deferrals < 1 {
			t.Errorf("split %+v", split)
		}
		attempts, err := q.Attempts(w.Context(), split.ID)
		w.must(err)
		if len(attempts) > 1 {
			t.Errorf("%d attempts of the split are recorded", len(attempts))
		}
		if slices.Max(slices.Collect(maps.Values(n.runs()))) != 1 {
			t.Errorf("subtasks ran more than once: %v", n.runs())
		}
	})
}

// With several executors, the split waits for room in its attempt.
func TestASplitWaitsForRoom(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	var n numbers
	n.handle(w, q)
	id, err := q.StartBatch(w.Context(), "square", 30, queue.Window(10))
	w.must(err)
	w.run(q)
	if status := w.waitBatch(q, id, queue.BatchDone); status.Subtasks.Done != 30 {
		t.Errorf("status %+v", status)
	}
}

// One of 20 numbers fails. With 5% the batch goes on, and with less it is stopped until a person has retried the
// subtask.
func TestAllowFailed(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		var repaired atomic.Bool
		n := numbers{fail: func(_ holdfast.Task, number int) error {
			if number == 13 && !repaired.Load() {
				return holdfast.Permanent(errors.New("unlucky"))
			}
			return nil
		}}
		n.handle(w, q)
		allowed, err := q.StartBatch(w.Context(), "square", 20, queue.AllowFailed("5%"), queue.Then("after", nil))
		w.must(err)
		refused, err := q.StartBatch(w.Context(), "square", 20, queue.AllowFailed("0"))
		w.must(err)
		after := make(chan sum, 1)
		w.must(queue.Handle(q, "after", func(ctx context.Context, _ holdfast.Task, _ any) error {
			sums, err := queue.Previous[sum](ctx)
			if err == nil && len(sums) == 1 {
				after <- sums[0]
			}
			return err
		}))
		w.run(q)
		status := w.waitBatch(q, allowed, queue.BatchDone)
		if status.Subtasks != (queue.BatchCounts{Total: 20, Done: 19, Dead: 1}) || status.Stages != 3 {
			t.Errorf("status %+v", status)
		}
		if s := <-after; s != (sum{20, 1, squares(20) - 169}) {
			t.Errorf("the last stage has read %+v", s)
		}
		status = w.waitBatch(q, refused, queue.BatchStopped)
		if status.Stopped == "" || status.Subtasks.Dead != 1 {
			t.Errorf("status %+v", status)
		}
		if _, err := queue.ReducedOf[sum](w.Context(), q, refused); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("the value of a stopped batch: %v", err)
		}
		repaired.Store(true)
		for item, err := range queue.ResultsOf[int, int](w.Context(), q, refused) {
			w.must(err)
			if item.Task.State == holdfast.Dead {
				_, err := q.Retry(w.Context(), item.Task.ID)
				w.must(err)
			}
		}
		w.awaitBatch(q, refused, func(s queue.BatchStatus) bool { return s.State == queue.BatchDone })
		if s, err := queue.ReducedOf[sum](w.Context(), q, refused); err != nil || s != (sum{Items: 20, Sum: squares(20)}) {
			t.Errorf("reduced to %+v, %v", s, err)
		}
	})
}

func TestChain(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		add := func(ctx context.Context, task holdfast.Task, own int) error {
			previous, err := queue.Previous[int](ctx)
			if err != nil {
				return err
			}
			if task.Failures == 0 && task.Type == "sum" {
				return errors.New("failed once")
			}
			for i, p := range previous {
				own += p * (i + 1) // so that the order counts
			}
			return queue.Output(ctx, own)
		}
		w.must(queue.Handle(q, "number", add))
		w.must(queue.Handle(q, "sum", add))
		w.must(queue.Handle(q, "silent", func(context.Context, holdfast.Task, any) error { return nil }))
		first := queue.Stage{{Type: "number", Payload: 100}}
		fan := queue.Stage{
			{"number", 1, []queue.TaskOption{queue.Priority(holdfast.PriorityLow)}},
			{"silent", nil, []queue.TaskOption{queue.Queue("others")}},
			{"number", 3, []queue.TaskOption{queue.Priority(holdfast.PriorityHigh)}},
		}
		id, err := q.StartChain(w.Context(), []queue.Stage{first, fan, {{"sum", 0, []queue.TaskOption{queue.MaxAttempts(3)}}}})
		w.must(err)
		w.run(q)
		w.waitBatch(q, id, queue.BatchDone)
		last := w.tasksOf(q, "sum")[0]
		if given := w.tasksOf(q, "silent")[0]; given.MaxAttempts != 0 || given.Queue != "others" || last.MaxAttempts != 3 {
			t.Errorf("tasks with other options: %+v, %+v", given, last)
		}
		if got, err := queue.OutputOf[int](w.Context(), q, last.ID); err != nil || got != 101+3*103 || last.Batch != id || last.Failures != 1 {
			t.Errorf("the last task %+v has the output %d, %v", last, got, err)
		}
	})
}

func TestPreviousNeedsATaskOfAStage(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	if _, err := queue.Previous[int](w.Context()); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("outside a handler: %v", err)
	}
	w.must(queue.Handle(q, "lone", func(ctx context.Context, _ holdfast.Task, _ any) error {
		if _, err := queue.Previous[int](ctx); !errors.Is(err, holdfast.ErrInvalid) {
			return holdfast.Permanent(fmt.Errorf("no ErrInvalid: %w", err))
		}
		return nil
	}))
	var n numbers
	n.handle(w, q)
	id, err := q.StartChain(w.Context(), []queue.Stage{{{"lone", nil, []queue.TaskOption{queue.MaxAttempts(1)}}}})
	w.must(err)
	lone := []holdfast.TaskID{
		w.enqueue(q, "lone", nil), w.enqueue(q, "lone", nil, queue.Unique("batch/"+id.String()+"/0/7")),
		w.enqueue(q, "lone", nil, queue.Unique("batch/77777/1/0")),
	}
	odd := []holdfast.TaskID{w.enqueue(q, "square.split", 5), w.enqueue(q, "square.reduce", nil)}
	w.run(q)
	for _, task := range lone {
		if got := w.wait(q, task); got.State != holdfast.Done {
			t.Errorf("task %+v", got)
		}
	}
	for _, task := range odd {
		if got := w.wait(q, task); got.State != holdfast.Dead || got.Failures != 1 {
			t.Errorf("task %+v", got)
		}
	}
	if status := w.waitBatch(q, id, queue.BatchStopped); status.Subtasks.Dead != 1 { // the first stage has no stage before it
		t.Errorf("status %+v", status)
	}
}

func TestOpenBatch(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		n := numbers{noReduce: true}
		n.handle(w, q)
		ready := make(chan []int, 1)
		w.must(queue.Handle(q, "ready", func(ctx context.Context, _ holdfast.Task, _ any) error {
			outputs, err := queue.Previous[int](ctx)
			ready <- outputs
			return err
		}))
		b, err := q.OpenBatch(w.Context(), queue.BatchName("numbers"), queue.Then("ready", nil))
		w.must(err)
		const last = plan.MaxChunk + 100
		payloads := make([]any, last)
		for i := range payloads {
			payloads[i] = i + 1
		}
		var invalid *queue.TaskError
		if err := b.Add(w.Context(), "square", 1, func() {}); !errors.As(err, &invalid) || invalid.Index != 1 {
			t.Errorf("add a payload that is invalid: %v", err)
		}
		// The first call stores two pages, and the store does not answer after the second one.
		breaking := &breakAfter{Store: queue.Backend(q).Store}
		breaking.steps.Store(1)
		queue.Backend(q).Store = breaking
		if err := b.Add(w.Context(), "square", payloads...); !errors.Is(err, errBroken) {
			t.Errorf("add without a store: %v", err)
		}
		breaking.steps.Store(1000)
		if err := b.Add(w.Context(), "square", 9); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("other subtasks after an error: %v", err)
		}
		w.must(b.Add(w.Context(), "square", payloads...))

		other, err := q.OpenBatch(w.Context(), queue.BatchName("numbers"))
		w.must(err)
		if other.ID() != b.ID() {
			t.Errorf("batch %s has the name of %s", other.ID(), b.ID())
		}
		w.must(other.AddTasks(w.Context(), []queue.NewTask{
			{Type: "square", Payload: last + 1, Options: []queue.TaskOption{queue.Unique("once")}},
			{Type: "square", Payload: last + 1, Options: []queue.TaskOption{queue.Unique("once")}},
		}))
		if err := b.Add(w.Context(), "square", last+2); !errors.Is(err, holdfast.ErrConflict) {
			t.Errorf("two processes add subtasks: %v", err)
		}
		w.run(q)
		w.must(other.Seal(w.Context()))
		status := w.waitBatch(q, b.ID(), queue.BatchDone)
		if status.Subtasks != (queue.BatchCounts{Total: last + 1, Done: last + 1, Duplicate: 1}) {
			t.Errorf("status %+v", status)
		}
		outputs := <-ready
		if len(outputs) != last+1 || outputs[0] != 1 || outputs[last] != (last+1)*(last+1) {
			t.Errorf("%d outputs", len(outputs))
		}
		w.must(other.Seal(w.Context()))
		if err := other.Add(w.Context(), "square", 1); !errors.Is(err, holdfast.ErrConflict) {
			t.Errorf("add after the end: %v", err)
		}
		if _, err := q.ContinueBatch(w.Context(), b.ID()); !errors.Is(err, holdfast.ErrConflict) {
			t.Errorf("continue after the end: %v", err)
		}
	})
}

var errBroken = errors.New("broken")

// breakAfter is a store whose StepPlan commits after some calls, and then returns an error.
type breakAfter struct {
	store.Store
	steps atomic.Int64 // a janitor makes steps, too
}

func (b *breakAfter) StepPlan(
	ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem),
) (store.Plan, error) {
	p, err := b.Store.StepPlan(ctx, step, finish)
	if b.steps.Add(-1) < 0 {
		return store.Plan{}, errors.Join(errBroken, err)
	}
	return p, err
}

// A person pauses a batch while its split runs, resumes it, and cancels it.
func TestAPersonOperatesABatch(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		n := numbers{}
		added, goOn := make(chan int, 100), make(chan struct{})
		n.splitEnd = func(attempt, number int) error {
			if number == 1000*attempt+1 { // a page is being stored
				added <- number
				<-goOn
			}
			return nil
		}
		n.handle(w, q)
		id, err := q.StartBatch(w.Context(), "square", 10_000)
		w.must(err)
		w.run(q)
		b := queue.Backend(q)
		<-added
		w.awaitBatch(q, id, func(s queue.BatchStatus) bool { return s.Subtasks.Total == 1000 })
		_, _, err = b.PauseBatch(w.Context(), ada, id)
		w.must(err)
		goOn <- struct{}{} // the second page is refused, and the split ends its attempt
		w.waitBatch(q, id, queue.BatchPaused)
		w.awaitBatch(q, id, func(queue.BatchStatus) bool { return w.tasksOf(q, "square.split")[0].Deferrals == 1 })
		if status, err := q.Batch(w.Context(), id); err != nil || status.Subtasks.Total != 1000 {
			t.Errorf("status %+v, %v", status, err)
		}
		_, _, err = b.ResumeBatch(w.Context(), ada, id)
		w.must(err)
		if number := <-added; number != 2001 {
			t.Errorf("the split goes on before %d, want 2001", number)
		}
		w.awaitBatch(q, id, func(s queue.BatchStatus) bool { return s.Subtasks.Total == 2000 })
		_, _, _, err = b.CancelBatch(w.Context(), ada, id)
		w.must(err)
		close(goOn)
		w.waitBatchEnd(q, id, queue.BatchCancelled)
		if status, err := q.Batch(w.Context(), id); err != nil || status.Subtasks.Total != 2000 || n.reduced.Load() != 0 {
			t.Errorf("status %+v, %v", status, err)
		}
	})
}

// waitBatchEnd waits until a batch has a state, through other ones.
func (w *fixture) waitBatchEnd(q *queue.Client, id holdfast.BatchID, want queue.BatchState) {
	w.Helper()
	w.awaitBatch(q, id, func(s queue.BatchStatus) bool { return s.State == want })
}

func TestMapWithoutAValueStoresNoOutput(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		w.must(queue.HandleBatch(q, "odd", queue.Batch[any, int, *int]{Map: func(_ context.Context, _ holdfast.Task, n int) (*int, error) {
			if n%2 == 0 {
				return nil, nil
			}
			return &n, nil
		}}))
		b, err := q.OpenBatch(w.Context())
		w.must(err)
		w.must(b.Add(w.Context(), "odd", 1, 2))
		w.must(b.Seal(w.Context()))
		w.run(q)
		w.waitBatch(q, b.ID(), queue.BatchDone)
		read := 0
		for subtask, err := range queue.ResultsOf[int, *int](w.Context(), q, b.ID()) {
			w.must(err)
			_, err = queue.OutputOf[*int](w.Context(), q, subtask.Task.ID)
			if odd := subtask.Payload == 1; odd != (subtask.Output != nil) || odd != (err == nil) || !odd && !errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("subtask %d has the output %v, %v", subtask.Payload, subtask.Output, err)
			}
			read++
		}
		if read != 2 {
			t.Errorf("%d results", read)
		}
	})
}

// A batch of a limited type holds neither the executors nor the batch of another type in the same queue.
func TestALimitedTypeHoldsUpNoOtherBatch(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open(queue.Concurrency(4))
		limit := store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "limited"}}, Concurrency: 1}
		_, err := queue.Backend(q).SetLimit(w.Context(), ada, limit.Change())
		w.must(err)
		begun, goOn := make(chan struct{}, 100), make(chan struct{})
		w.must(queue.Handle(q, "limited", func(context.Context, holdfast.Task, int) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}))
		n := numbers{noReduce: true}
		n.handle(w, q)
		held, err := q.OpenBatch(w.Context())
		w.must(err)
		payloads := make([]any, 100)
		for i := range payloads {
			payloads[i] = i
		}
		w.must(held.Add(w.Context(), "limited", payloads...))
		w.must(held.Seal(w.Context()))
		w.run(q)
		<-begun
		id, err := q.StartBatch(w.Context(), "square", 200)
		w.must(err)
		if status := w.waitBatch(q, id, queue.BatchDone); status.Subtasks.Done != 200 {
			t.Errorf("status %+v", status)
		}
		if status, err := q.Batch(w.Context(), held.ID()); err != nil || status.Subtasks.Done != 0 || len(begun) > 0 {
			t.Errorf("while one subtask runs, the status is %+v, %v, and %d more have begun", status, err, len(begun))
		}
		_, err = queue.Backend(q).UnsetLimit(w.Context(), ada, limit.Scope)
		w.must(err)
		close(goOn)
		w.waitBatch(q, held.ID(), queue.BatchDone)
	})
}

// A stopped batch goes on without its failures if a person resumes it.
func TestAStoppedBatchGoesOnWithoutItsFailures(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	n := numbers{fail: func(_ holdfast.Task, number int) error {
		if number > 18 {
			return holdfast.Permanent(errors.New("too large"))
		}
		return nil
	}}
	n.handle(w, q)
	id, err := q.StartBatch(w.Context(), "square", 20, queue.AllowFailed("1"))
	w.must(err)
	w.run(q)
	w.waitBatch(q, id, queue.BatchStopped)
	// The janitor counts in several steps. So it waits until both failures are known.
	w.awaitBatch(q, id, func(s queue.BatchStatus) bool { return s.Subtasks.Dead == 2 && s.Subtasks.Done == 18 })
	_, _, err = queue.Backend(q).ResumeBatch(w.Context(), ada, id)
	w.must(err)
	w.waitBatch(q, id, queue.BatchDone)
	if s, err := queue.ReducedOf[sum](w.Context(), q, id); err != nil || s.Failed != 2 {
		t.Errorf("reduced to %+v, %v", s, err)
	}
}

// A program can leave out the functions for splitting and reducing.
func TestBatchWithoutSplitAndReduce(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	if err := queue.HandleBatch(q, "none", queue.Batch[int, int, int]{}); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("without a function Map: %v", err)
	}
	q = w.open()
	n := numbers{noReduce: true}
	n.handle(w, q)
	id, err := q.StartBatch(w.Context(), "square", 0) // an empty batch
	w.must(err)
	w.run(q)
	w.waitBatch(q, id, queue.BatchDone)
	if reduce := w.tasksOf(q, "square.reduce"); len(reduce) != 1 || reduce[0].State != holdfast.Done {
		t.Errorf("reduce: %+v", reduce)
	}
	if _, err := queue.ReducedOf[sum](w.Context(), q, id); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("the value: %v", err)
	}
}

func TestBatchArguments(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	start := func(opts ...queue.BatchOption) error {
		_, err := q.StartBatch(w.Context(), "square", 1, opts...)
		return err
	}
	chain := func(stages ...queue.Stage) error {
		_, err := q.StartChain(w.Context(), stages)
		return err
	}
	for what, err := range map[string]error{
		"share":      start(queue.AllowFailed("101%")),
		"name":       start(queue.BatchName("a b")),
		"no name":    start(queue.BatchName("")),
		"window":     start(queue.Window(0)),
		"then":       start(queue.Then("", nil)),
		"then late":  start(queue.Then("a", nil, queue.In(time.Second))),
		"then once":  start(queue.Then("a", nil, queue.Unique("a"))),
		"no stage":   chain(),
		"no task":    chain(queue.Stage{}),
		"unique":     chain(queue.Stage{{"a", nil, []queue.TaskOption{queue.Unique("a")}}}),
		"payload":    chain(queue.Stage{{Type: "a", Payload: func() {}}}),
		"many tasks": chain(slices.Repeat(queue.Stage{{Type: "a"}}, plan.MaxChunk+1)),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"batch": func() error { _, err := q.Batch(w.Context(), 77); return err }(),
		"wait":  func() error { _, err := q.WaitBatch(w.Context(), 77); return err }(),
		"value": func() error { _, err := queue.ReducedOf[int](w.Context(), q, 77); return err }(),
		"open":  func() error { _, err := q.ContinueBatch(w.Context(), 77); return err }(),
		"results": func() (err error) {
			for _, err = range queue.ResultsOf[int, int](w.Context(), q, 77) {
			}
			return err
		}(),
	} {
		if !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// If the attempt of a split does not run any more, it adds nothing. After a retry, the split continues after its
// cursor.
func TestASplitThatIsCancelledAddsNothing(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		adding, goOn, refused := make(chan holdfast.TaskID), make(chan struct{}), make(chan error, 1)
		cursors := make(chan string, 10)
		w.must(queue.HandleBatch(q, "item", queue.Batch[int, int, int]{
			Split: func(ctx context.Context, last int, to *queue.Split[int]) error {
				cursors <- to.Cursor()
				first, _ := strconv.Atoi(to.Cursor())
				if first > 0 {
					last = first + 100
				}
				for i := first + 1; i <= last; i++ {
					if first == 0 && i == 1001 {
						adding <- w.tasksOf(q, "item.split")[0].ID
						<-goOn
						ctx = context.WithoutCancel(ctx)
					}
					if err := to.Add(ctx, i, strconv.Itoa(i)); err != nil {
						if again := to.Add(ctx, i, strconv.Itoa(i)); again != err {
							t.Errorf("after %v, Add returns %v", err, again)
						}
						refused <- err
						return nil // the error counts
					}
				}
				return nil
			},
			Map: func(context.Context, holdfast.Task, int) (int, error) { return 0, nil },
		}))
		id, err := q.StartBatch(w.Context(), "item", 3500)
		w.must(err)
		w.run(q)
		split := <-adding
		w.awaitBatch(q, id, func(s queue.BatchStatus) bool { return s.Subtasks.Total == 1000 })
		_, err = q.Cancel(w.Context(), split)
		w.must(err)
		close(goOn)
		// The janitor may have stopped the batch before the call.
		if err := <-refused; !errors.Is(err, holdfast.ErrLeaseLost) && !errors.Is(err, holdfast.ErrConflict) {
			t.Errorf("Add returns %v", err)
		}
		w.waitBatch(q, id, queue.BatchStopped)
		_, err = q.Retry(w.Context(), split)
		w.must(err)
		w.waitBatchEnd(q, id, queue.BatchDone)
		if status, err := q.Batch(w.Context(), id); err != nil || status.Subtasks.Done != 1100 {
			t.Errorf("status %+v, %v", status, err)
		}
		if first, second := <-cursors, <-cursors; first != "" || second != "1000" || len(cursors) > 0 {
			t.Errorf("the attempts of the split began at %q and %q", first, second)
		}
	})
}

func TestSplitRefusesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	problems := make(chan []error, 1)
	w.must(queue.HandleBatch(q, "item", queue.Batch[int, any, int]{
		Split: func(ctx context.Context, _ int, to *queue.Split[any]) error {
			problems <- []error{
				to.Add(ctx, func() {}, "1"), to.Add(ctx, 1, "\x00"), to.Add(ctx, 1, "\xff"), to.Add(ctx, 1, strings.Repeat("c", 5000)),
				to.Add(ctx, 1, "1", queue.Unique("")),
			}
			if err := to.Add(ctx, strings.Repeat("large", 1_000), "2", queue.Unique("item 2")); err != nil {
				return err
			}
			return to.Add(ctx, 3, "3", queue.Unique("item 2"))
		},
		Map: func(context.Context, holdfast.Task, any) (int, error) { return 0, nil },
	}))
	id, err := q.StartBatch(w.Context(), "item", 1)
	w.must(err)
	w.run(q)
	for i, err := range <-problems {
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("subtask %d: %v", i, err)
		}
	}
	if status := w.waitBatch(q, id, queue.BatchDone); status.Subtasks != (queue.BatchCounts{Total: 1, Done: 1, Duplicate: 1}) {
		t.Errorf("status %+v", status)
	}
}

// A key of a subtask that another transaction holds uses up no attempt of the split. The error names the key.
func TestASplitWaitsForHeldKeys(t *testing.T) {
	t.Parallel()
	w := onServers(t)
	q, db := w.open(), w.database()
	w.must(queue.HandleBatch(q, "item", queue.Batch[int, int, int]{
		Split: func(ctx context.Context, last int, to *queue.Split[int]) error {
			first, _ := strconv.Atoi(to.Cursor())
			for i := first + 1; i <= last; i++ {
				if err := to.Add(ctx, i, strconv.Itoa(i), queue.Unique("item "+strconv.Itoa(i))); err != nil {
					return err
				}
			}
			return nil
		},
		Map: func(context.Context, holdfast.Task, int) (int, error) { return 0, nil },
	}, queue.MaxAttempts(1)))
	w.must(queue.Handle(q, "other", func(context.Context, holdfast.Task, any) error { return nil }))
	tx, err := db.BeginTx(w.Context(), nil)
	w.must(err)
	defer func() { _ = tx.Rollback() }()
	_, err = q.Tx(tx).Enqueue(w.Context(), "other", nil, queue.Unique("item 1500"))
	w.must(err)
	id, err := q.StartBatch(w.Context(), "item", 2000)
	w.must(err)
	w.run(q)
	var split holdfast.Task
	w.eventually("two attempts of the split have ended", func() bool {
		found := w.tasksOf(q, "item.split")
		if len(found) == 1 {
			split = found[0]
		}
		// On a busy machine, the search for the key may end before it has found the key.
		return split.Deferrals >= 2 && strings.Contains(split.LastError, `holds the unique key "item 1500"`)
	})
	if split.Failures != 0 {
		t.Errorf("the split waits: %+v", split)
	}
	w.must(tx.Rollback())
	if status := w.waitBatch(q, id, queue.BatchDone); status.Subtasks.Done != 2000 || status.Subtasks.Duplicate != 0 {
		t.Errorf("status %+v", status)
	}
}

// A page is also full if its payloads have 4 MiB.
func TestPagesOfLargeSubtasks(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	cursors := make(chan string, 10)
	w.must(queue.HandleBatch(q, "item", queue.Batch[int, string, string]{
		Split: func(ctx context.Context, last int, to *queue.Split[string]) error {
			cursors <- to.Cursor()
			first, _ := strconv.Atoi(to.Cursor())
			for i := first + 1; i <= last; i++ {
				if first == 0 && i == 7 {
					return errors.New("failed once")
				}
				if err := to.Add(ctx, strings.Repeat("x", 1_000_000), strconv.Itoa(i)); err != nil {
					return err
				}
			}
			return nil
		},
		Map: func(_ context.Context, _ holdfast.Task, item string) (string, error) { return item[:1], nil },
	}))
	id, err := q.StartBatch(w.Context(), "item", 8)
	w.must(err)
	w.run(q)
	if status := w.waitBatch(q, id, queue.BatchDone); status.Subtasks.Done != 8 {
		t.Errorf("status %+v", status)
	}
	if first, second := <-cursors, <-cursors; first != "" || second != "5" {
		t.Errorf("the attempts of the split began at %q and %q", first, second)
	}
}

// The outputs that CompleteTx has stored stay.
func TestMapMayCompleteInATransaction(t *testing.T) {
	t.Parallel()
	w := onServers(t)
	q, db := w.open(), w.database()
	w.must(queue.HandleBatch(q, "item", queue.Batch[int, int, int]{
		Map: func(ctx context.Context, _ holdfast.Task, item int) (int, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return 0, err
			}
			defer func() { _ = tx.Rollback() }()
			if err := errors.Join(queue.Output(ctx, item+1), queue.CompleteTx(ctx, tx)); err != nil {
				return 0, err
			}
			return -1, tx.Commit()
		},
	}))
	b, err := q.OpenBatch(w.Context())
	w.must(err)
	w.must(errors.Join(b.Add(w.Context(), "item", 1), b.Seal(w.Context())))
	w.run(q)
	w.waitBatch(q, b.ID(), queue.BatchDone)
	for item, err := range queue.ResultsOf[int, int](w.Context(), q, b.ID()) {
		if err != nil || item.Output != 2 {
			t.Errorf("item %+v, %v", item, err)
		}
	}
}
