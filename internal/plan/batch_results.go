package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// ResultStore is the part of a store that results are read from.
type ResultStore interface {
	store.Plans
	store.Effects
	FullTasks(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
	TaskSizes(ctx context.Context, ids []holdfast.TaskID) ([]store.TaskSize, error)
}

// Result is a subtask with its output.
type Result struct {
	Task   holdfast.Task   // with its payload
	Output json.RawMessage // empty if it has none
	Cursor ResultCursor
}

// Results returns the tasks of a stage of a batch, except its split, in the order of their ids in each chunk, and the
// chunks in the order in which they were stored. Tasks that were deleted are missing. It reads groups of tasks with at
// most groupBytes, or one larger task, at a time.
func Results(ctx context.Context, s ResultStore, batch store.ID, stage int) iter.Seq2[Result, error] {
	return ResultsAfter(ctx, s, batch, stage, ResultCursor{}, 0)
}

// ResultCursor is the place of a result among all results of a stage. The zero value is the place before the first one.
type ResultCursor struct {
	Chunk int
	Task  holdfast.TaskID
}

// ResultsAfter is like Results, and leaves out the results up to a place. It reads at most limit results; 0 means all.
func ResultsAfter(ctx context.Context, s ResultStore, batch store.ID, stage int, place ResultCursor, limit int) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		r := resultReader{store: s, batch: batch, stage: stage, place: place, group: firstGroup, left: limit, yield: yield}
		if limit <= 0 {
			r.left = math.MaxInt
		}
		if err := r.chunks(ctx); err != nil && !errors.Is(err, errEnough) {
			yield(Result{}, err)
		}
	}
}

const (
	// groupBytes limits the payloads and outputs of the results that are read together.
	groupBytes = 4 << 20
	// firstGroup is the number of results of the first group. Later groups have more, as far as groupBytes allows.
	// Before it reads a group, the reader reads the sizes of its results, and a store may have to read the values for
	// that. So the first group is small.
	firstGroup = 8
)

// errEnough ends a read whose caller needs no more results.
var errEnough = errors.New("enough results")

// resultReader reads the results of a stage.
type resultReader struct {
	store ResultStore
	batch store.ID
	stage int
	place ResultCursor // the results up to it are left out
	group int          // the most results of the next group
	left  int          // results that the caller needs
	yield func(Result, error) bool
}

// chunks reads all chunks from that of the place on.
func (r *resultReader) chunks(ctx context.Context) error {
	after := chunkName(r.stage, 0)[:4]
	if r.place.Chunk > 0 {
		after = chunkName(r.stage, r.place.Chunk-1)
	}
	for {
		items, err := r.store.PlanItems(ctx, r.batch, store.PlanItemFilter{After: after, Limit: itemBatch})
		if err != nil {
			return err
		}
		for _, item := range items {
			if after = item.Item; stageOf(after) != r.stage {
				return nil
			}
			if err := r.chunk(ctx, item); err != nil {
				return err
			}
		}
		if len(items) < itemBatch {
			return nil
		}
	}
}

// chunk reads the results of a chunk, a group at a time.
func (r *resultReader) chunk(ctx context.Context, item store.PlanItem) error {
	number, err := strconv.Atoi(item.Item[strings.IndexByte(item.Item, '/')+1:])
	if err != nil {
		return fmt.Errorf("item %s: %w", item.Item, err)
	}
	var c chunk
	if err := decode(item.Data, &c); err != nil {
		return fmt.Errorf("item %s: %w", item.Item, err)
	}
	if c.Split {
		return nil
	}
	ids := make([]holdfast.TaskID, 0, c.Counts.Total)
	for _, run := range c.Runs {
		for id := run.First; id <= run.Last; id++ {
			if number > r.place.Chunk || id > r.place.Task {
				ids = append(ids, id)
			}
		}
	}
	for len(ids) > 0 {
		n, err := r.fitting(ctx, ids)
		if err != nil {
			return err
		}
		if err := r.read(ctx, number, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// fitting returns how many of the ids are in the next group.
func (r *resultReader) fitting(ctx context.Context, ids []holdfast.TaskID) (int, error) {
	n := min(len(ids), r.group, r.left)
	if n == 1 {
		r.group = max(r.group, 2)
		return 1, nil
	}
	sizes, err := r.store.TaskSizes(ctx, ids[:n])
	if err != nil {
		return 0, err
	}
	bytes := int64(0)
	for i, size := range sizes {
		if bytes += size.Bytes; i > 0 && bytes > groupBytes {
			r.group = i
			return slices.Index(ids, size.Task), nil
		}
	}
	if bytes <= groupBytes/2 {
		r.group = min(2*r.group, MaxChunk)
	}
	return n, nil
}

// read reads a group and passes it on.
func (r *resultReader) read(ctx context.Context, chunk int, ids []holdfast.TaskID) error {
	tasks, err := r.store.FullTasks(ctx, ids)
	if err != nil {
		return err
	}
	values, err := r.store.TaskData(ctx, ids, store.OutputData)
	if err != nil {
		return err
	}
	outputs := make(map[holdfast.TaskID]json.RawMessage, len(values))
	for _, v := range values {
		outputs[v.Task] = v.Value
	}
	for _, task := range tasks {
		if !r.yield(Result{task, outputs[task.ID], ResultCursor{chunk, task.ID}}, nil) {
			return errEnough
		}
		if r.left--; r.left == 0 {
			return errEnough
		}
	}
	return nil
}
