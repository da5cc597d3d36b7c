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

// Load describes the tasks that one producer process enqueues.
type Load struct {
	URL   string // URL of the recorder
	First int    // number of the first task; the following tasks have the following numbers
	Rate  int    // tasks per second
}

// Accepted is a batch that the producer accepted. From then on its tasks must not be lost.
type Accepted struct {
	At    time.Time         `json:"at"`
	First int               `json:"first"`
	IDs   []holdfast.TaskID `json:"ids"`
	// DelaysMS are the delays of the tasks.
	DelaysMS []int64 `json:"delays_ms"`
}

// maxAttempts is more than the highest number of failures of a task of the load.
const maxAttempts = 20

// Produce enqueues the load until ctx is done, and writes a JSON line to out for each accepted batch. If a call fails,
// it enqueues the same batch with the same unique keys again until the batch is accepted.
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
		ids := enqueueUntilAccepted(ctx, backend, p, tasks)
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

// enqueueUntilAccepted enqueues a batch until it is accepted, and returns the ids of the tasks. It returns nil if ctx
// is done first.
func enqueueUntilAccepted(ctx context.Context, backend *app.Backend, p *producer.Producer, tasks []holdfast.NewTask) []holdfast.TaskID {
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
		backend.Log.WithError(err).Warn("batch not accepted, trying again")
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// limitedKey is the key of the tasks that a limit concerns: at most limitedAtOnce of them run at the same time.
const (
	limitedKey    = "limited"
	limitedAtOnce = 8
)

// newTask returns a random task. Most tasks take less than a second. Some fail once or twice, some are delayed, and a
// few take longer than the consumer timeout of the broker. One in five is limited, and one in ten is paused now and then.
// Each priority is equally frequent.
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
	task.Priority = holdfast.Priorities()[rng.IntN(len(holdfast.Priorities()))]
	switch n := rng.IntN(10); {
	case n < 2:
		order.Limited, task.Key = true, limitedKey
	case n == 2:
		order.Paused, task.Key = true, pausedKey
	}
	payload, err := json.Marshal(map[string]any{"url": url, "body": order})
	task.Payload = payload
	return task, err
}
