package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/producer"
)

// Load is what one producer process enqueues.
type Load struct {
	URL   string // of the recorder
	First int    // number of the first task; the process counts on from it
	Rate  int    // tasks a second
}

// Accepted is a batch that the producer took: from then on its tasks may not be lost.
type Accepted struct {
	At    time.Time         `json:"at"`
	First int               `json:"first"`
	IDs   []holdfast.TaskID `json:"ids"`
	// DelaysMS are those that the tasks asked for.
	DelaysMS []int64 `json:"delays_ms"`
}

// maxAttempts is more than any task of the load can fail, be it ever so unlucky.
const maxAttempts = 20

// Produce enqueues the load until ctx is done and writes a line for each batch that was accepted. A batch that got
// an error is sent again under the same unique keys until it is accepted.
func Produce(ctx context.Context, backend *app.Backend, load Load, out io.Writer) error {
	p := backend.Producer(nil)
	defer p.Close()
	lines := json.NewEncoder(out)
	rng := rand.New(rand.NewPCG(uint64(load.First), 0x1f83d9abfb41bd6b))
	const each = 200 * time.Millisecond
	size := max(1, load.Rate*int(each)/int(time.Second))
	tick := time.NewTicker(each)
	defer tick.Stop()
	for number := load.First; ; number += size {
		tasks, delays := make([]holdfast.NewTask, size), make([]int64, size)
		for i := range tasks {
			task, err := newTask(rng, load.URL, number+i)
			if err != nil {
				return err
			}
			tasks[i], delays[i] = task, task.Delay.Milliseconds()
		}
		ids := insist(ctx, backend, p, tasks)
		if ids == nil {
			return nil
		}
		if err := lines.Encode(Accepted{At: time.Now(), First: number, IDs: ids, DelaysMS: delays}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// insist enqueues until it is accepted; nil if ctx ended first.
func insist(ctx context.Context, backend *app.Backend, p *producer.Producer, tasks []holdfast.NewTask) []holdfast.TaskID {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		results, err := p.EnqueueMany(call, tasks)
		cancel()
		if err == nil {
			ids := make([]holdfast.TaskID, len(results))
			for i, result := range results {
				ids[i] = result.ID
			}
			return ids
		}
		backend.Log.WithError(err).Warn("not accepted, trying again")
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// newTask draws a task. Most take moments; some fail at first, some are delayed, and a few take longer than the
// broker lets a delivery stay unacknowledged.
func newTask(rng *rand.Rand, url string, number int) (holdfast.NewTask, error) {
	order := Order{Number: number, TakesMS: 20 + rng.IntN(800)}
	task := holdfast.NewTask{Type: "http", Unique: fmt.Sprint("n", number), MaxAttempts: maxAttempts}
	switch n := rng.IntN(1000); {
	case n < 3:
		order.TakesMS = int((consumerTimeout + time.Duration(rng.IntN(20))*time.Second).Milliseconds())
	case n < 100:
		order.Failures = 1 + rng.IntN(2)
	case n < 150:
		task.Delay = time.Duration(rng.IntN(15000)) * time.Millisecond
	}
	payload, err := json.Marshal(map[string]any{"url": url, "body": order})
	task.Payload = payload
	return task, err
}
