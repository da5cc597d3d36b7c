package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// indexerVariable makes the program of the tests an indexer, and has its settings.
const indexerVariable = "E2E_INDEXER"

// indexer are the settings of a program that rebuilds an index.
type indexer struct {
	Index string // URL of the index
}

// runIndexer runs the program that the tests start and kill.
func runIndexer(settings string) error {
	var i indexer
	if err := json.Unmarshal([]byte(settings), &i); err != nil {
		return err
	}
	q, err := queue.Open(context.Background(), queue.Logger(logrus.New()), queue.Set("types.reindex.split.max_crashes", "1000"))
	if err != nil {
		return err
	}
	defer q.Close()
	err = queue.HandleBatch(q, "reindex", queue.Batch[int, int, string]{Split: i.split, Map: i.index, Reduce: i.reduce}, queue.Timeout(time.Minute))
	if err != nil {
		return err
	}
	return q.Run(context.Background())
}

// split stores a subtask for each product. It reports each page to the server, which may kill the program.
func (i *indexer) split(ctx context.Context, products int, to *queue.Split[int]) error {
	begin := 0
	if cursor := to.Cursor(); cursor != "" {
		var err error
		if begin, err = strconv.Atoi(cursor); err != nil {
			return err
		}
	}
	for product := begin + 1; product <= products; product++ {
		if product%500 == 0 {
			if err := i.post(ctx, "/split", product); err != nil {
				return err
			}
		}
		if err := to.Add(ctx, product, strconv.Itoa(product)); err != nil {
			return err
		}
	}
	return nil
}

func (i *indexer) index(ctx context.Context, _ holdfast.Task, product int) (string, error) {
	return fmt.Sprint("document ", product), i.post(ctx, "/index", product)
}

func (i *indexer) reduce(ctx context.Context, items *queue.Results[int, string]) (any, error) {
	n := 0
	for r, err := range items.All(ctx) {
		if err != nil {
			return nil, err
		}
		if r.Output != fmt.Sprint("document ", r.Payload) {
			return nil, holdfast.Permanent(fmt.Errorf("product %d has the output %q", r.Payload, r.Output))
		}
		n++
	}
	return n, nil
}

func (i *indexer) post(ctx context.Context, path string, product int) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, i.Index+path, strings.NewReader(strconv.Itoa(product)))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// index is a server that counts how often each product is indexed. It can leave a call unanswered, so that the test
// kills the program during that call.
type index struct {
	*httptest.Server

	mu     sync.Mutex
	calls  map[int]int // how often each product was indexed
	splits int         // calls of the split
	// At the call of the split with the number splitLimit, or when the number of different products reaches indexLimit,
	// the server closes reached and does not answer. 0 means never.
	splitLimit, indexLimit int
	reached                chan struct{}
}

func newIndex(t *testing.T) *index {
	t.Helper()
	x := &index{calls: make(map[int]int)}
	x.Server = httptest.NewServer(http.HandlerFunc(x.handle))
	t.Cleanup(func() {
		x.CloseClientConnections()
		x.Close()
	})
	return x
}

func (x *index) handle(_ http.ResponseWriter, r *http.Request) {
	var product int
	if json.NewDecoder(r.Body).Decode(&product) != nil {
		return
	}
	x.mu.Lock()
	hang := false
	if r.URL.Path == "/split" {
		x.splits++
		hang = x.splits == x.splitLimit
	} else {
		x.calls[product]++
		hang = len(x.calls) == x.indexLimit
	}
	if hang {
		x.splitLimit, x.indexLimit = 0, 0
		close(x.reached)
	}
	x.mu.Unlock()
	if hang {
		<-r.Context().Done() // the program was killed
	}
}

// at sets the next call that the server does not answer, and returns a channel that it then closes.
func (x *index) at(splits, products int) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.splitLimit, x.indexLimit, x.reached = 0, products, make(chan struct{})
	if splits > 0 {
		x.splitLimit = x.splits + splits
	}
	return x.reached
}

// snapshot returns how often each product was indexed.
func (x *index) snapshot() map[int]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.calls)
}

// A program that rebuilds an index is killed with kill -9: while it splits, and when the last product but one is being
// indexed. A subtask that had ended does not run again. Others run again only if the program ran or had buffered them at
// a kill. No subtask is missing or stored twice, and the outputs are reduced once.
func TestBatchesSurviveKills(t *testing.T) { onBothBackends(t, batchesSurviveKills) }

func batchesSurviveKills(t *testing.T, w *world) {
	w.lease = shortLease()
	products, rounds := slow.Pick(2_500, 10_000), slow.Pick(1, 5)
	if w.embedded && slow.All() {
		products, rounds = 100_000, 1
	}
	for range rounds {
		surviveKills(t, w, products)
	}
}

// surviveKills runs a batch. It kills the split few times, because a task that has crashed often waits before its next
// attempt.
func surviveKills(t *testing.T, w *world, products int) {
	r := &batchRun{t: t, world: w, index: newIndex(t), ended: make(map[int]int)}
	input := json.RawMessage(strconv.Itoa(products))
	split := plan.Task{Type: "reindex.split", Payload: input}
	started, _, err := w.StartBatch(t.Context(), anna, "all", plan.Batch{Stages: []plan.Stage{
		{Split: &split}, {Tasks: []plan.Task{{Type: "reindex.reduce"}}, After: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.id = started.ID
	r.start()
	for i := range slow.Pick(3, 4) {
		reached := r.index.at(1+i%2, 0)
		poll(t, func() string { return "the split does not go on" }, func(ctx context.Context) bool {
			select {
			case <-reached:
				r.restart()
				return true
			default:
				return r.batch(ctx).Progress.Sealed
			}
		})
		if r.batch(t.Context()).Progress.Sealed {
			break
		}
	}
	reached := r.index.at(0, products-1)
	pollFor(t, 10*slow.Patience(), func() string { return fmt.Sprintf("%d products are indexed", len(r.index.snapshot())) }, func(context.Context) bool {
		select {
		case <-reached:
			return true
		default:
			return false
		}
	})
	r.restart()
	state := ""
	poll(t, func() string { return "the batch is " + state }, func(ctx context.Context) bool {
		b := r.batch(ctx)
		state = fmt.Sprintf("%s: %+v", b.State, b.Progress)
		return b.State == store.PlanDone
	})
	r.check(products)
	r.kill()
}

// batchRun is a batch and the program that runs it.
type batchRun struct {
	*world
	t     *testing.T
	index *index
	id    holdfast.BatchID
	kill  func()
	kills int
	ended map[int]int // by product whose subtask had ended at a kill: how often it had been indexed
	held  int         // subtasks that ran or were buffered at the kills
}

func (r *batchRun) batch(ctx context.Context) app.Batch {
	b, err := r.Batch(ctx, r.id)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *batchRun) start() {
	r.kill = r.startChild(r.t, indexerVariable, marshal(r.t, indexer{r.index.URL})).kill
}

// restart kills the program and starts it again. Meanwhile it notes which subtasks have ended.
func (r *batchRun) restart() {
	r.t.Helper()
	r.kill()
	r.kills++
	calls, done := r.index.snapshot(), []holdfast.TaskID(nil)
	for _, task := range r.tasks(r.t) {
		switch {
		case task.Type != "reindex" || task.Batch != r.id:
		case task.State == holdfast.Done:
			done = append(done, task.ID)
		case task.State == holdfast.Running:
			r.held++
		}
	}
	full, err := r.Store.FullTasks(r.t.Context(), done)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, task := range full {
		product, err := strconv.Atoi(string(task.Payload))
		if err != nil {
			r.t.Fatal(err)
		}
		if _, known := r.ended[product]; !known {
			r.ended[product] = calls[product]
		}
	}
	r.start()
}

// check checks the calls, the subtasks and the result at the end.
func (r *batchRun) check(products int) {
	r.t.Helper()
	calls, repeated := r.index.snapshot(), 0
	for product := 1; product <= products; product++ {
		n := calls[product]
		if before, ended := r.ended[product]; n == 0 || ended && n != before {
			r.t.Errorf("product %d was indexed %d times, %d times before its subtask had ended", product, n, before)
		}
		if n > 1 {
			repeated++
		}
	}
	if repeated > r.held {
		r.t.Errorf("%d products were indexed again, and only %d were claimed at the kills", repeated, r.held)
	}
	if p := r.batch(r.t.Context()).Progress; p.Subtasks != (plan.Counts{Total: int64(products), Done: int64(products)}) {
		r.t.Errorf("progress %+v", p)
	}
	var reduces []holdfast.TaskID
	for _, task := range r.tasks(r.t) {
		if task.Type == "reindex.reduce" && task.Batch == r.id {
			reduces = append(reduces, task.ID)
		}
	}
	outputs, err := r.Store.TaskData(r.t.Context(), reduces, store.OutputData)
	if err != nil || len(reduces) != 1 || len(outputs) != 1 || string(outputs[0].Value) != strconv.Itoa(products) {
		r.t.Errorf("reduces %v with the outputs %v: %v", reduces, outputs, err)
	}
	r.t.Logf("%d products, %d kills: %d were claimed at the kills, and %d ran again", products, r.kills, r.held, repeated)
}
