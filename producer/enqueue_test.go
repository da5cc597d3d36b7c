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
	"github.com/holdfastq/holdfast/broker/rabbitmq/rabbittest"
)

// answer is what one Enqueue returned.
type answer struct {
	result Result
	err    error
}

// enqueueAside calls Enqueue in a goroutine.
func (w *world) enqueueAside(ctx context.Context, task holdfast.NewTask) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		result, err := w.Enqueue(ctx, task)
		done <- answer{result, err}
	}()
	return done
}

// occupy starts as many calls as there may be batches on their way, and returns when each is one of its own.
func (w *world) occupy() (calls []<-chan answer) {
	w.Helper()
	for n := range inserters {
		calls = append(calls, w.enqueueAside(w.Context(), task(-n-1)))
		w.eventually("the insert has begun", func() bool { return len(w.inserts.calls()) == n+1 })
	}
	return calls
}

// Calls that come together share a few inserts and messages, and each gets the id of its own task.
func TestCallsShareInserts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	first := w.occupy()
	const n = 64
	calls := make([]<-chan answer, n)
	for i := range calls {
		calls[i] = w.enqueueAside(t.Context(), task(i))
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
	w.eventually("no receipt is left", func() bool { return w.count("outbox") == 0 })
}

// A call that ends while it waits leaves nothing behind; one whose batch is on its way does not stop it.
func TestACancelledCallStoresNothingIfItCan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	w.occupy()
	gone := errors.New("the caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	waiting := w.enqueueAside(ctx, task(1))
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

func TestACancelledCallOnItsWayIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	call := w.enqueueAside(ctx, task(1))
	w.eventually("the insert has begun", func() bool { return len(w.inserts.calls()) == 1 })
	cancel()
	if a := await(w, "the call returns", call); !errors.Is(a.err, context.Canceled) || !strings.Contains(a.err.Error(), "may have been stored") {
		t.Errorf("got %v", a.err)
	}
	close(w.inserts.gate)
	w.must(w.Close())
	if tickets, _ := w.take(w.main()); len(tickets) != 1 || w.count("tasks") != 1 || w.count("outbox") != 0 {
		t.Errorf("%d tickets, %d tasks, %d receipts", len(tickets), w.count("tasks"), w.count("outbox"))
	}
}

// A task that the store cannot hold is refused alone.
func TestATaskTheStoreRefusesDoesNotHarmItsNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.gate = make(chan struct{})
	bad := holdfast.NewTask{Type: "bad"}
	w.inserts.fail = func(_ int, tasks []holdfast.NewTask) error { // such as PostgreSQL with JSON that is nested too deep
		if slices.ContainsFunc(tasks, func(task holdfast.NewTask) bool { return task.Type == bad.Type }) {
			return fmt.Errorf("%w: no column holds this", holdfast.ErrInvalid)
		}
		return nil
	}
	w.occupy()
	wrong := w.enqueueAside(t.Context(), bad)
	var right []<-chan answer
	for i := range 5 {
		right = append(right, w.enqueueAside(t.Context(), task(i)))
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
	// The calls that occupied the producer may return after those that waited for one of them.
	w.eventually("they and the five are stored", func() bool { return w.count("tasks") == inserters+5 })
}

// A store that is away fails the calls, all of them and with nothing published.
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
	if n := w.letters.calls(); n != 0 {
		t.Errorf("published %d times", n)
	}
}

// What the broker does with the tickets decides about the receipt, never about the call.
func TestTheReceiptStaysUntilTheTicketsAreConfirmed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*world)
		receipts int
		tickets  int
	}{
		"confirmed":         {func(*world) {}, 0, 3},
		"confirmed in part": {func(w *world) { w.letters.refuse = refuseOne() }, 1, 2},
		"no such queue": {func(w *world) {
			w.must(w.broker.Delete(w.Context(), []broker.Object{{Kind: broker.Queue, Name: w.main()}}))
		}, 1, -1},
		"no broker": {func(w *world) { w.letters.Publisher = nowhere(w) }, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			test.change(w)
			began := time.Now()
			results, err := w.EnqueueMany(t.Context(), tasks(3))
			if err != nil || len(results) != 3 {
				t.Fatalf("got %v, %v", results, err)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("the call took %s", took)
			}
			w.publisher.close()
			if n := w.count("outbox"); n != test.receipts {
				t.Errorf("%d receipts, want %d", n, test.receipts)
			}
			if test.tickets >= 0 {
				if got, _ := w.take(w.main()); len(got) != test.tickets {
					t.Errorf("%d tickets, want %d", len(got), test.tickets)
				}
			}
			// The same for a single task.
			if _, err := w.Enqueue(t.Context(), task(9)); err != nil {
				t.Errorf("one task: %v", err)
			}
			w.must(w.Close())
			want := 2 * test.receipts
			if name == "confirmed in part" {
				want = 1 // this one was not refused
			}
			if n := w.count("outbox"); n != want {
				t.Errorf("one task: %d receipts, want %d", n, want)
			}
		})
	}
}

// refuseOne refuses the second message.
func refuseOne() func(broker.Message) bool {
	n := 0
	return func(broker.Message) bool { n++; return n == 2 }
}

// nowhere is a client of a broker that does not run.
func nowhere(w *world) broker.Publisher {
	w.Helper()
	b, err := rabbitmq.Open(w.Context(), rabbitmq.Options{URLs: []string{rabbittest.At(w, rabbittest.URL(w), "127.0.0.1:1")}})
	w.must(err)
	w.Cleanup(func() { _ = b.Close() })
	return b
}

// A broker that takes its time holds up nobody, except who closes the producer.
func TestASlowBrokerHoldsUpTheCloseForTheConfirmTimeout(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	w := newWorld(t, func(o *Options) { o.ConfirmTimeout = limit })
	given := make(chan struct{})
	w.letters.Publisher = deaf{given}
	began := time.Now()
	if _, err := w.Enqueue(t.Context(), task(1)); err != nil {
		t.Error(err)
	}
	select {
	case <-given:
		t.Error("the call waited until the tickets were given up")
	default:
	}
	w.must(w.Close())
	if closed := time.Since(began); closed < limit {
		t.Errorf("closed after %s, while the confirm may still come", closed)
	}
	if n := w.count("outbox"); n != 1 {
		t.Errorf("%d receipts", n)
	}
}

// Who stores faster than the broker takes has to wait for it, and is free again when it is given up.
func TestWhoStoresFasterThanTheBrokerTakesWaits(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	w := newWorld(t, func(o *Options) { o.ConfirmTimeout = time.Hour })
	w.letters.Publisher = gated{gate}
	const n = maxPending + 2*maxWindow
	done := make(chan error, 1)
	go func() {
		_, err := w.EnqueueMany(t.Context(), tasks(n))
		done <- err
	}()
	w.eventually("as much waits as may", func() bool { return w.pending(holdfast.DefaultLane) >= maxPending })
	select {
	case err := <-done:
		t.Fatalf("all tasks were stored while the broker took nothing: %v", err)
	default:
	}
	close(gate)
	w.must(await(w, "all tasks are stored", done))
	w.must(w.Close())
	if stored, left := w.count("tasks"), w.count("outbox"); stored != n || left != n/batchSize {
		t.Errorf("%d tasks, %d receipts of which none was confirmed", stored, left)
	}
}

// gated is a broker that answers nobody until its gate opens, and then that it is away.
type gated struct{ gate <-chan struct{} }

func (g gated) Publish(_ context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	<-g.gate
	return make([]broker.Outcome, len(messages)), errFault
}

// deaf is a broker that never answers its one call; it closes given when the caller gives up.
type deaf struct{ given chan struct{} }

func (d deaf) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	<-ctx.Done()
	close(d.given)
	return make([]broker.Outcome, len(messages)), errFault
}

// A large call is several transactions; its ids come in the order of its tasks, and its tickets share messages.
func TestManyTasksKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const n = 2*batchSize + 17
	results, err := w.EnqueueMany(t.Context(), tasks(n))
	w.must(err)
	w.publisher.close()
	if got := w.inserts.calls(); !slices.Equal(got, []int{batchSize, batchSize, 17}) {
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
		t.Errorf("%d receipts are left", left)
	}
}

// After a failure the results are those of the tasks that are stored for certain.
func TestManyTasksThatFailHalfWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.inserts.fail = func(call int, _ []holdfast.NewTask) error {
		if call == 3 {
			return errFault
		}
		return nil
	}
	results, err := w.EnqueueMany(t.Context(), tasks(4*batchSize))
	if !errors.Is(err, holdfast.ErrUnavailable) || len(results) != 2*batchSize {
		t.Fatalf("%d results, %v", len(results), err)
	}
	w.publisher.close()
	if stored, left := w.count("tasks"), w.count("outbox"); stored != 2*batchSize || left != 0 {
		t.Errorf("%d tasks are stored, %d receipts are left", stored, left)
	}
	for _, i := range []int{0, batchSize, 2*batchSize - 1} {
		if got := w.payload(results[i].ID); got != fmt.Sprint(i) {
			t.Errorf("task %d is %s", i, got)
		}
	}
	if tickets, _ := w.take(w.main()); len(tickets) != 2*batchSize {
		t.Errorf("%d tickets", len(tickets))
	}
}

// A wrong task is named, and nothing is stored: neither it nor its neighbours.
func TestAWrongTaskStoresNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *Options) { o.MaxPayload = 100 })
	list := tasks(2 * batchSize)
	list[batchSize+5].Payload = []byte(`"` + strings.Repeat("x", 100) + `"`)
	var wrong *TaskError
	if results, err := w.EnqueueMany(t.Context(), list); !errors.As(err, &wrong) || wrong.Index != batchSize+5 || !errors.Is(err, holdfast.ErrInvalid) || results != nil {
		t.Errorf("got %v, %v", results, err)
	}
	if _, err := w.EnqueueTx(t.Context(), nil, list...); !errors.As(err, &wrong) || wrong.Index != batchSize+5 {
		t.Errorf("got %v", err)
	}
	if _, err := w.Enqueue(t.Context(), list[batchSize+5]); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if n := len(w.inserts.calls()); n != 0 {
		t.Errorf("%d inserts", n)
	}
}

// Settings fill in what a task does not name, and a unique key is stored once.
func TestWhatATaskDoesNotName(t *testing.T) {
	t.Parallel()
	policy := holdfast.DefaultPolicy()
	policy.MaxAttempts = 4
	w := newWorld(t, func(o *Options) {
		o.Settings = holdfast.Settings{Types: map[string]holdfast.TypeSettings{"report": {Policy: policy, Lane: "slow"}}}
	})
	results, err := w.EnqueueMany(t.Context(), []holdfast.NewTask{
		{Type: "work"}, {Type: "report"}, {Type: "report", Lane: "quick", MaxAttempts: 2},
		{Type: "work", Unique: "one"}, {Type: "work", Unique: "one"}, {Type: "work", Delay: time.Hour},
	})
	w.must(err)
	for i, want := range []struct {
		lane string
		max  int
	}{{"default", holdfast.DefaultMaxAttempts}, {"slow", 4}, {"quick", 2}} {
		got, err := w.store.Task(t.Context(), results[i].ID)
		w.must(err)
		if got.Lane != want.lane || got.MaxAttempts != want.max || string(got.Payload) != "null" {
			t.Errorf("task %d is %+v", i, got)
		}
	}
	if results[3].Duplicate || !results[4].Duplicate || results[3].ID != results[4].ID {
		t.Errorf("the unique ones are %v and %v", results[3], results[4])
	}
	tickets, _ := w.take(w.main())
	for _, ticket := range tickets {
		if ticket.Task == results[5].ID {
			t.Error("a task that waits has a ticket")
		}
	}
	if len(tickets) != 2 {
		t.Errorf("%d tickets, want 2", len(tickets))
	}
}

// Close waits for what is on its way and refuses what comes later.
func TestCloseWaitsAndRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.letters.gate = make(chan struct{})
	w.must(await(w, "the call returns", w.enqueueAside(t.Context(), task(1))).err)
	w.eventually("the publish has begun", func() bool { return w.letters.calls() == 1 })
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
		t.Error("Close returned before what is on its way")
	default:
	}
	close(w.letters.gate)
	await(w, "Close returns", closed)
	closing.Wait()
	if left := w.count("outbox"); left != 0 {
		t.Errorf("%d receipts are left", left)
	}
	w.must(w.Close()) // again
}
