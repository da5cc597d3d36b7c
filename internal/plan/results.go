package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// ResultStore is the part of a store that results are read from.
type ResultStore interface {
	store.Plans
	store.Data
	FullTasks(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
}

// Result is a subtask with its output.
type Result struct {
	Task   holdfast.Task   // with its payload
	Output json.RawMessage // empty if it has none
	Cursor ResultCursor
}

// Results returns the tasks of a stage of a batch, except its split, in the order of their ids in each chunk, and the
// chunks in the order in which they were stored. Tasks that were deleted are missing. It reads a chunk at a time.
func Results(ctx context.Context, s ResultStore, batch store.ID, stage int) iter.Seq2[Result, error] {
	return ResultsAfter(ctx, s, batch, stage, ResultCursor{})
}

// ResultCursor is the place of a result among all results of a stage. The zero value is the place before the first one.
type ResultCursor struct {
	Chunk int
	Task  holdfast.TaskID
}

// ResultsAfter is like Results, and leaves out the results up to a place.
func ResultsAfter(ctx context.Context, s ResultStore, batch store.ID, stage int, place ResultCursor) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		after := chunkName(stage, 0)[:4]
		if place.Chunk > 0 {
			after = chunkName(stage, place.Chunk-1)
		}
		for {
			items, err := s.PlanItems(ctx, batch, store.PlanItemFilter{After: after, Limit: itemBatch})
			if err != nil {
				yield(Result{}, err)
				return
			}
			for _, item := range items {
				if after = item.Item; stageOf(after) != stage {
					return
				}
				results, err := resultsOf(ctx, s, item, place)
				if err != nil {
					yield(Result{}, err)
					return
				}
				for _, r := range results {
					if !yield(r, nil) {
						return
					}
				}
			}
			if len(items) < itemBatch {
				return
			}
		}
	}
}

// resultsOf returns the tasks of an item after a place with their outputs.
func resultsOf(ctx context.Context, s ResultStore, item store.PlanItem, place ResultCursor) ([]Result, error) {
	number, err := strconv.Atoi(item.Item[strings.IndexByte(item.Item, '/')+1:])
	if err != nil {
		return nil, fmt.Errorf("item %s: %w", item.Item, err)
	}
	var c chunk
	if err := decode(item.Data, &c); err != nil {
		return nil, fmt.Errorf("item %s: %w", item.Item, err)
	}
	if c.Split {
		return nil, nil
	}
	ids := make([]holdfast.TaskID, 0, c.Counts.Total)
	for _, run := range c.Runs {
		for id := run.First; id <= run.Last; id++ {
			if number > place.Chunk || id > place.Task {
				ids = append(ids, id)
			}
		}
	}
	tasks, err := s.FullTasks(ctx, ids)
	if err != nil {
		return nil, err
	}
	values, err := s.TaskData(ctx, ids, store.OutputData)
	if err != nil {
		return nil, err
	}
	outputs := make(map[holdfast.TaskID]json.RawMessage, len(values))
	for _, v := range values {
		outputs[v.Task] = v.Value
	}
	results := make([]Result, len(tasks))
	for i, task := range tasks {
		results[i] = Result{task, outputs[task.ID], ResultCursor{number, task.ID}}
	}
	return results, nil
}
