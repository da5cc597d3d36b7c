package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// answer is the result of an Enqueue call.
type answer struct {
	result Result
	err    error
}

// enqueueAsync calls Enqueue in a goroutine.
func (w *world) enqueueAsync(ctx context.Context, task holdfast.NewTask) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		result, err := w.Enqueue(ctx, task)
		done <- answer{result, err}
	}()
	return done
}

// occupyInserters starts one call for each inserter. It returns when each inserter inserts its call alone.
func (w *world) occupyInserters() (calls []<-chan answer) {
	w.Helper()
	for n := range inserters {
		calls = append(calls, w.enqueueAsync(w.Context(), task(-n-1)))
		w.eventually("the insert has begun", func() bool { return len(w.inserts.calls()) == n+1 })
	}
	return calls
}

// Concurrent calls share a few inserts and messages, and each gets the id of its own task.
func TestCallsShareInserts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	first := w.occupyInserters()
	const n = 64
	calls := make([]<-chan answer, n)
	for i := range calls {
		calls[i] = w.enqueueAsync(t.Context(), task(i))
	}
	w.eventually("all calls wait", func() bool { return w.queued() == n })
	close(w.inserts.gate)
	for i, call := range calls {
		a := await(w, "the call returns", call)
		w.must(a.err)
		if got := w.payload(a.result.ID); got != fmt.Sprint(i) {
			t.Errorf("call %d got the id of task %s", i, got)
		}
	}
	for _, call := range first {
		w.must(await(w, "the call returns", call).err)
	}
	if got := w.inserts.calls(); len(got) > inserters+2 || got[0] != 1 {
		t.Errorf("the inserts had %v tasks", got)
	}
	tickets, messages := w.take(w.main())
	if len(tickets) != n+inserters || messages > n/4 {
		t.Errorf("%d tickets in %d messages", len(tickets), messages)
	}
	w.eventually("no outbox entry is left", func() bool { return w.count("outbox") == 0 })
}

// A call whose context ends while it waits for an inserter stores nothing.
func TestACancelledCallStoresNothingIfItCan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	w.occupyInserters()
	gone := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	waiting := w.enqueueAsync(ctx, task(1))
	w.eventually("the call waits", func() bool { return w.queued() == 1 })
	cancel(gone)
	if a := await(w, "the call returns", waiting); !errors.Is(a.err, gone) || !strings.Contains(a.err.Error(), "not stored") {
		t.Errorf("got %v", a.err)
	}
	close(w.inserts.gate)
	w.must(w.Close())
	if n := w.count("tasks"); n != inserters {
		t.Errorf("%d tasks are stored, want %d", n, inserters)
	}
}

// A call whose context ends while its insert is in progress is stored.
func TestACancelledCallOnItsWayIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	call := w.enqueueAsync(ctx, task(1))
	w.eventually("the insert has begun", func() bool { return len(w.inserts.calls()) == 1 })
	cancel()
	if a := await(w, "the call returns", call); !errors.Is(a.err, context.Canceled) || !strings.Contains(a.err.Error(), "may have been stored") {
		t.Errorf("got %v", a.err)
	}
	close(w.inserts.gate)
	w.must(w.Close())
	if tickets, _ := w.take(w.main()); len(tickets) != 1 || w.count("tasks") != 1 || w.count("outbox") != 0 {
		t.Errorf("%d tickets, %d tasks, %d outbox entries", len(tickets), w.count("tasks"), w.count("outbox"))
	}
}

// If the store refuses a task, only its own call fails.
func TestATaskTheStoreRefusesDoesNotHarmItsNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	bad := holdfast.NewTask{Type: "bad"}
	w.inserts.fail = func(_ int, tasks []holdfast.NewTask) error { // PostgreSQL refuses JSON that is nested too deep, for example
		if slices.ContainsFunc(tasks, func(task holdfast.NewTask) bool { return task.Type == bad.Type }) {
			return fmt.Errorf("%w: no column holds this", holdfast.ErrInvalid)
		}
		return nil
	}
	w.occupyInserters()
	wrong := w.enqueueAsync(t.Context(), bad)
	var right []<-chan answer
	for i := range 5 {
		right = append(right, w.enqueueAsync(t.Context(), task(i)))
	}
	w.eventually("all calls wait", func() bool { return w.queued() == 6 })
	close(w.inserts.gate)
	if a := await(w, "the call returns", wrong); !errors.Is(a.err, holdfast.ErrInvalid) {
		t.Errorf("got %v", a.err)
	}
	for i, call := range right {
		a := await(w, "the call returns", call)
		w.must(a.err)
		if got := w.payload(a.result.ID); got != fmt.Sprint(i) {
			t.Errorf("call %d got the id of task %s", i, got)
		}
	}
	// The calls that occupied the inserters may return last.
	w.eventually("all valid tasks are stored", func() bool { return w.count("tasks") == inserters+5 })
}

// If the store is unavailable, the calls fail and nothing is published.
func TestAStoreThatIsAwayFailsTheCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.fail = func(int, []holdfast.NewTask) error { return errFault }
	if _, err := w.Enqueue(t.Context(), task(1)); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if results, err := w.EnqueueMany(t.Context(), tasks(3)); !errors.Is(err, holdfast.ErrUnavailable) || len(results) != 0 {
		t.Errorf("got %v, %v", results, err)
	}
	if n := w.publishes.calls(); n != 0 {
		t.Errorf("published %d times", n)
	}
}

// If a ticket is not confirmed, its outbox entry remains, but the call succeeds.
func TestTheEntryStaysUntilTheTicketsAreConfirmed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*world)
		entries int
		tickets int
	}{
		"confirmed":         {func(*world) {}, 0, 3},
		"confirmed in part": {func(w *world) { w.publishes.refuse = refuseOne() }, 1, 2},
		"no such queue": {func(w *world) {
			w.must(w.broker.Delete(w.Context(), []broker.Object{{Kind: broker.Queue, Name: w.main()}}))
		}, 1, -1},
		"no broker": {func(w *world) { w.publishes.Publisher = unreachableBroker(w) }, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			test.change(w)
			results, err := w.EnqueueMany(t.Context(), tasks(3))
			if err != nil || len(results) != 3 {
				t.Fatalf("got %v, %v", results, err)
			}
			w.publisher.close()
			if n := w.count("outbox"); n != test.entries {
				t.Errorf("%d outbox entries, want %d", n, test.entries)
			}
			if test.tickets >= 0 {
				if got, _ := w.take(w.main()); len(got) != test.tickets {
					t.Errorf("%d tickets, want %d", len(got), test.tickets)
				}
			}
			// A single task behaves in the same way.
			if _, err := w.Enqueue(t.Context(), task(9)); err != nil {
				t.Errorf("one task: %v", err)
			}
			w.must(w.Close())
			want := 2 * test.entries
			if name == "confirmed in part" {
				want = 1 // only the first entry, because the broker does not refuse the single task
			}
			if n := w.count("outbox"); n != want {
				t.Errorf("one task: %d outbox entries, want %d", n, want)
			}
		})
	}
}

// refuseOne returns a function that refuses the second message.
func refuseOne() func(broker.Message) bool {
	n := 0
	return func(broker.Message) bool { n++; return n == 2 }
}

// unreachableBroker returns the client of a broker that does not run.
func unreachableBroker(w *world) broker.Publisher {
	w.Helper()
	b, err := rabbitmq.Open(w.Context(), rabbitmq.Options{URLs: []string{rabbittest.At(w, rabbittest.URL(w), "127.0.0.1:1")}})
	w.must(err)
	w.Cleanup(func() { _ = b.Close() })
	return b
}

// A slow broker delays no call. It delays Close, for ConfirmTimeout.
func TestASlowBrokerHoldsUpTheCloseForTheConfirmTimeout(t *testing.T) {
	t.Parallel()
	limit := slow.Times(2 * time.Second)
	w := newWorld(t, func(o *Options) { o.ConfirmTimeout = limit })
	given := make(chan struct{})
	w.publishes.Publisher = unansweringBroker{given}
	began := time.Now()
	if _, err := w.Enqueue(t.Context(), task(1)); err != nil {
		t.Error(err)
	}
	select {
	case <-given:
		t.Error("the call waited until the publish timed out")
	default:
	}
	w.must(w.Close())
	if closed := time.Since(began); closed < limit {
		t.Errorf("Close returned after %s, before the confirm timeout", closed)
	}
	if n := w.count("outbox"); n != 1 {
		t.Errorf("%d outbox entries", n)
	}
}

// If a caller stores tasks faster than the broker accepts tickets, the caller waits. It continues when the publisher
// gives up the tickets.
func TestACallerThatStoresFasterThanTheBrokerTakesWaits(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	w := newWorld(t, func(o *Options) { o.ConfirmTimeout = time.Hour })
	w.publishes.Publisher = gatedBroker{gate}
	const n = maxPending + 2*maxGroupTickets
	done := make(chan error, 1)
	go func() {
		_, err := w.EnqueueMany(t.Context(), tasks(n))
		done <- err
	}()
	w.eventually("the maximum of tickets waits", func() bool { return w.pending(holdfast.DefaultQueue) >= maxPending })
	select {
	case err := <-done:
		t.Fatalf("EnqueueMany returned while the broker took no tickets: %v", err)
	default:
	}
	close(gate)
	w.must(await(w, "all tasks are stored", done))
	w.must(w.Close())
	if stored, left := w.count("tasks"), w.count("outbox"); stored != n || left != n/maxInsertTasks {
		t.Errorf("%d tasks are stored, %d outbox entries are left", stored, left)
	}
}

// gatedBroker is a broker whose calls wait until its gate is closed, and then fail.
type gatedBroker struct{ gate <-chan struct{} }

func (g gatedBroker) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	<-g.gate
	return make([]broker.Outcome, len(messages)), errFault
}

// unansweringBroker is a broker that never answers its only call. It closes given when the caller gives up.
type unansweringBroker struct{ given chan struct{} }

func (d unansweringBroker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	<-ctx.Done()
	close(d.given)
	return make([]broker.Outcome, len(messages)), errFault
}

// A large call takes several transactions. Its results are in the order of its tasks, and its tickets share messages.
func TestManyTasksKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const n = 2*maxInsertTasks + 17
	results, err := w.EnqueueMany(t.Context(), tasks(n))
	w.must(err)
	w.publisher.close()
	if got := w.inserts.calls(); !slices.Equal(got, []int{maxInsertTasks, maxInsertTasks, 17}) {
		t.Errorf("the inserts had %v tasks", got)
	}
	byID := make(map[holdfast.TaskID]string)
	rows, err := queryPayloads(w)
	w.must(err)
	for id, payload := range rows {
		byID[id] = payload
	}
	if len(results) != n || len(byID) != n {
		t.Fatalf("%d results, %d tasks", len(results), len(byID))
	}
	for i, r := range results {
		if byID[r.ID] != fmt.Sprint(i) || r.Duplicate {
			t.Fatalf("task %d got id %s, which is %s", i, r.ID, byID[r.ID])
		}
	}
	tickets, messages := w.take(w.main())
	if len(tickets) != n || messages > 3*17 { // at least 62 in most messages
		t.Errorf("%d tickets in %d messages", len(tickets), messages)
	}
	if left := w.count("outbox"); left != 0 {
		t.Errorf("%d outbox entries are left", left)
	}
}

// After a failure, the results belong to the tasks that are certainly stored.
func TestManyTasksThatFailHalfWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.fail = func(call int, _ []holdfast.NewTask) error {
		if call == 3 {
			return errFault
		}
		return nil
	}
	results, err := w.EnqueueMany(t.Context(), tasks(4*maxInsertTasks))
	if !errors.Is(err, holdfast.ErrUnavailable) || len(results) != 2*maxInsertTasks {
		t.Fatalf("%d results, %v", len(results), err)
	}
	w.publisher.close()
	if stored, left := w.count("tasks"), w.count("outbox"); stored != 2*maxInsertTasks || left != 0 {
		t.Errorf("%d tasks are stored, %d outbox entries are left", stored, left)
	}
	for _, i := range []int{0, maxInsertTasks, 2*maxInsertTasks - 1} {
		if got := w.payload(results[i].ID); got != fmt.Sprint(i) {
			t.Errorf("task %d is %s", i, got)
		}
	}
	if tickets, _ := w.take(w.main()); len(tickets) != 2*maxInsertTasks {
		t.Errorf("%d tickets", len(tickets))
	}
}

// If one task of a call is invalid, the error has its index, and no task is stored.
func TestAWrongTaskStoresNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *Options) { o.MaxPayload = 100 })
	list := tasks(2 * maxInsertTasks)
	list[maxInsertTasks+5].Payload = []byte(`"` + strings.Repeat("x", 100) + `"`)
	var wrong *TaskError
	if results, err := w.EnqueueMany(t.Context(), list); !errors.As(err, &wrong) || wrong.Index != maxInsertTasks+5 || !errors.Is(err, holdfast.ErrInvalid) || results != nil {
		t.Errorf("got %v, %v", results, err)
	}
	if _, err := w.EnqueueTx(t.Context(), nil, list...); !errors.As(err, &wrong) || wrong.Index != maxInsertTasks+5 {
		t.Errorf("got %v", err)
	}
	if _, err := w.Enqueue(t.Context(), list[maxInsertTasks+5]); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if n := len(w.inserts.calls()); n != 0 {
		t.Errorf("%d inserts", n)
	}
}

// The settings fill in the fields that a task leaves empty. A unique key is stored once.
func TestWhatATaskDoesNotName(t *testing.T) {
	t.Parallel()
	policy := holdfast.DefaultPolicy()
	policy.MaxAttempts = 4
	w := newWorld(t, func(o *Options) {
		o.Settings = holdfast.Settings{Types: map[string]holdfast.TypeSettings{"report": {Policy: policy, Queue: "slow"}}}
	})
	results, err := w.EnqueueMany(t.Context(), []holdfast.NewTask{
		{Type: "work"}, {Type: "report"}, {Type: "report", Queue: "quick", MaxAttempts: 2},
		{Type: "work", Unique: "one"}, {Type: "work", Unique: "one"}, {Type: "work", Delay: time.Hour},
	})
	w.must(err)
	for i, want := range []struct {
		queue string
		max   int
	}{{"default", holdfast.DefaultMaxAttempts}, {"slow", 4}, {"quick", 2}} {
		got, err := w.store.Task(t.Context(), results[i].ID)
		w.must(err)
		if got.Queue != want.queue || got.MaxAttempts != want.max || string(got.Payload) != "null" {
			t.Errorf("task %d is %+v", i, got)
		}
	}
	if results[3].Duplicate || !results[4].Duplicate || results[3].ID != results[4].ID {
		t.Errorf("the unique ones are %v and %v", results[3], results[4])
	}
	tickets, _ := w.take(w.main())
	for _, ticket := range tickets {
		if ticket.Task == results[5].ID {
			t.Error("a delayed task has a ticket")
		}
	}
	if len(tickets) != 2 {
		t.Errorf("%d tickets, want 2", len(tickets))
	}
}

// Close waits for the publish in progress, and later calls fail.
func TestCloseWaitsAndRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.publishes.gate = make(chan struct{})
	w.must(await(w, "the call returns", w.enqueueAsync(t.Context(), task(1))).err)
	w.eventually("the publish has begun", func() bool { return w.publishes.calls() == 1 })
	_, err := w.EnqueueMany(t.Context(), tasks(2))
	w.must(err)
	closed := make(chan struct{})
	var closing sync.WaitGroup
	closing.Go(func() {
		defer close(closed)
		_ = w.Close()
	})
	w.eventually("later calls are refused", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.closed
	})
	if _, err := w.Enqueue(t.Context(), task(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := w.EnqueueMany(t.Context(), tasks(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("many: got %v", err)
	}
	if _, err := w.EnqueueTx(t.Context(), nil, tasks(2)...); !errors.Is(err, ErrClosed) {
		t.Errorf("in a transaction: got %v", err)
	}
	select {
	case <-closed:
		t.Error("Close returned before the publish in progress")
	default:
	}
	close(w.publishes.gate)
	await(w, "Close returns", closed)
	closing.Wait()
	if left := w.count("outbox"); left != 0 {
		t.Errorf("%d outbox entries are left", left)
	}
	w.must(w.Close()) // a second time
}

// A second inserter starts only for as many calls as the first one stores.
func TestASecondInserterStartsForEnoughCalls(t *testing.T) {
	for _, c := range []struct {
		inserting, storing, waiting int
		locks, want                 bool
	}{
		{0, 0, 1, false, true}, {1, 1, 1, false, true}, {1, 8, 7, false, false}, {1, 8, 8, false, true}, {inserters, 2, 100, false, false},
		{1, 8, 1, true, true}, {inserters, 2, 100, true, false},
	} {
		l := &callBacklog{waiting: make([]*call, c.waiting), inserting: c.inserting, storing: c.storing, locks: c.locks}
		if got := l.wantsInserter(inserters); got != c.want {
			t.Errorf("%+v: another inserter is wanted: %t", c, got)
		}
	}
}
