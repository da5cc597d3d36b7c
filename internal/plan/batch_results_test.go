package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// resultMeter counts the bytes of the payloads and outputs that are read together, and those of all reads.
type resultMeter struct {
	*world
	group, most, total int
}

func (m *resultMeter) FullTasks(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	tasks, err := m.world.FullTasks(ctx, ids)
	m.group = 0
	for i := range tasks {
		m.add(len(tasks[i].Payload))
	}
	return tasks, err
}

func (m *resultMeter) TaskData(ctx context.Context, ids []holdfast.TaskID, names ...string) ([]store.Datum, error) {
	values, err := m.world.TaskData(ctx, ids, names...)
	for i := range values {
		m.add(len(values[i].Value))
	}
	return values, err
}

func (m *resultMeter) add(bytes int) {
	m.group, m.total = m.group+bytes, m.total+bytes
	m.most = max(m.most, m.group)
}

// A read of results is limited by bytes, and not only by their number. All pages together read about what they return.
func TestResultsAreReadInGroupsOfSomeBytes(t *testing.T) {
	const limit = 4 << 20
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Open: true}}})
	large, data := strings.Repeat("x", 450_000), 0
	var payloads []any
	for i := range 300 { // many small results, and then many large ones: a group cannot rely on those before it
		payload := "1"
		if i >= 250 || i < 3 {
			payload = `"` + large + `"`
		}
		payloads = append(payloads, payload)
		data += len(payload)
	}
	payloads[270] = `"` + strings.Repeat(large, 12) + `"` // more than a group has
	data += 11 * len(large)
	w.must(w.push(id, 0, payloads...))
	worker := w.batchWorker()
	for i, task := range w.tasks() {
		claimed, ok := worker.claim(task)
		if !ok {
			t.Fatalf("task %s is not claimed", task.ID)
		}
		move, err := holdfast.Settle(claimed, holdfast.Returned(nil), w.now, holdfast.DefaultPolicy())
		w.must(err)
		if i >= 250 {
			move.Effects = &holdfast.Effects{Output: json.RawMessage(`"` + large + `"`)}
			data += len(large) + 2
		}
		_, err = w.Apply(w.Context(), []holdfast.Transition{move})
		w.must(err)
	}
	one := len(large) + len(payloads[270].(string)) + 2
	for _, size := range []int{0, 1, 7, 100} {
		m := &resultMeter{world: w}
		var place plan.ResultCursor
		read := 0
		for page := -1; page != 0; read += page {
			page = 0
			for r, err := range plan.ResultsAfter(w.Context(), m, id, 0, place, size) {
				w.must(err)
				output := ""
				if read+page >= 250 {
					output = `"` + large + `"`
				}
				if string(r.Task.Payload) != fmt.Sprint(payloads[read+page]) || string(r.Output) != output {
					t.Fatalf("result %d has a payload of %d bytes, an output of %d bytes", read+page, len(r.Task.Payload), len(r.Output))
				}
				place = r.Cursor
				page++
			}
			if size > 0 && page > size {
				t.Errorf("a page of %d results has %d", size, page)
			}
		}
		if read != len(payloads) || m.most > max(limit, one) || m.total != data {
			t.Errorf("pages of %d: %d results, at most %d bytes together, %d bytes in all, want %d results, %d and %d bytes",
				size, read, m.most, m.total, len(payloads), max(limit, one), data)
		}
	}
}
