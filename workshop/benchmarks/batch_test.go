package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

// BenchmarkBatch stores and runs tasks in one process: as plain tasks, as a batch, and as a batch whose subtasks have
// outputs. It reports the rates, without the time of the reduce, the ratio of each batch to the plain tasks of the same round, and the
// memory of the processes. BENCH_SUBTASKS sets the number of tasks, and BENCH_FILE runs them on a file.
func BenchmarkBatch(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	tasks := subtasks(b)
	roles := []string{"plain", "batch", "outputs"}
	rates, memory, reduced := make(map[string][]float64), make(map[string]float64), 0.0
	for round := 0; b.Loop(); round++ {
		order := slices.Clone(roles)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, role := range order {
			env := isolatedEnv(b, tasks)
			if os.Getenv("BENCH_FILE") != "" {
				env = append(env, "DATABASE_URL=sqlite:"+b.TempDir()+"/holdfast.db", "AMQP_URL=inproc:")
			}
			values := runRole(b, env, role)
			rates[role] = append(rates[role], float64(tasks)/(values["seconds"]-values["reduce"]))
			reduced += values["reduce"]
			memory[role] = max(memory[role], values["peak_mib"])
		}
	}
	for _, role := range roles {
		var ratios []float64
		for i, rate := range rates[role] {
			ratios = append(ratios, rate/rates["plain"][i])
		}
		slices.Sort(ratios)
		slices.Sort(rates[role])
		b.ReportMetric(rates[role][len(ratios)/2], role+"/s")
		b.ReportMetric(ratios[len(ratios)/2], role+"-ratio")
		b.ReportMetric(memory[role], role+"-MiB")
		b.Logf("%s: ratios %.2f", role, ratios)
	}
	b.ReportMetric(float64(tasks*len(rates["outputs"]))/reduced, "reduced/s")
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

// subtasks returns BENCH_SUBTASKS, or 200,000 if it is not set.
func subtasks(b *testing.B) int {
	b.Helper()
	text := os.Getenv("BENCH_SUBTASKS")
	if text == "" {
		return 200_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

type product struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
}

func productOf(n int) product {
	return product{n, fmt.Sprintf("product %d of a category with a name of usual length", n)}
}

// plainTasks stores and runs plain tasks in one process, with at most as many open ones as the window of a batch.
func plainTasks(tasks int) error {
	var done atomic.Int64
	ended := make(chan struct{})
	observe := observer(func(o holdfast.Observation) {
		if o.Kind == holdfast.ObservedSettled && done.Add(int64(o.Count)) == int64(tasks) {
			close(ended)
		}
	})
	return runQueue(func(q *queue.Client) error {
		return queue.Handle(q, "index", func(context.Context, holdfast.Task, product) error { return nil })
	}, func(ctx context.Context, q *queue.Client) error {
		const window = 20_000
		page := make([]queue.NewTask, 0, 1000)
		for n := range tasks {
			if page = append(page, queue.NewTask{Type: "index", Payload: productOf(n)}); len(page) < cap(page) && n+1 < tasks {
				continue
			}
			for int64(n)-done.Load() > window {
				time.Sleep(5 * time.Millisecond)
			}
			if _, err := q.EnqueueMany(ctx, page); err != nil {
				return err
			}
			page = page[:0]
		}
		<-ended
		return nil
	}, queue.Observer(observe))
}

// batchTasks runs a batch in one process.
func batchTasks(outputs bool) func(int) error {
	return func(tasks int) error {
		return runQueue(func(q *queue.Client) error {
			split := func(ctx context.Context, n int, to *queue.Split[product]) error {
				begin := 0
				if cursor := to.Cursor(); cursor != "" {
					begin, _ = strconv.Atoi(cursor)
				}
				for i := begin; i < n; i++ {
					if err := to.Add(ctx, productOf(i), strconv.Itoa(i+1)); err != nil {
						return err
					}
				}
				return nil
			}
			if outputs {
				return queue.HandleBatch(q, "index", queue.Batch[int, product, product]{
					Split:  split,
					Map:    func(_ context.Context, _ holdfast.Task, p product) (product, error) { return p, nil },
					Reduce: count,
				})
			}
			return queue.HandleBatch(q, "index", queue.Batch[int, product, any]{
				Split: split, Map: func(context.Context, holdfast.Task, product) (any, error) { return nil, nil },
			})
		}, func(ctx context.Context, q *queue.Client) error {
			id, err := q.StartBatch(ctx, "index", tasks)
			if err != nil {
				return err
			}
			status, err := q.WaitBatch(ctx, id)
			if err == nil && status.State != queue.BatchDone {
				err = fmt.Errorf("the batch is %+v", status)
			}
			return err
		})
	}
}

// count counts the outputs, and prints how long that takes.
func count(ctx context.Context, items *queue.Results[product, product]) (any, error) {
	n, start := 0, time.Now()
	for _, err := range items.All(ctx) {
		if err != nil {
			return nil, err
		}
		n++
	}
	fmt.Printf("reduce %f\n", time.Since(start).Seconds())
	return n, nil
}

// runQueue opens a client, runs it while work runs, and prints how long work took.
func runQueue(handle func(*queue.Client) error, work func(context.Context, *queue.Client) error, opts ...queue.Option) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q, err := queue.Open(ctx, append(opts, queue.Migrate(), queue.NoSignals())...)
	if err != nil {
		return err
	}
	defer q.Close()
	if err := handle(q); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	start := time.Now()
	err = work(ctx, q)
	fmt.Printf("seconds %f\n", time.Since(start).Seconds())
	stop()
	return errors.Join(err, <-ended)
}
