package main

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast/internal/load"
)

// drainStep measures a drain from its first task on. If it included the start of the worker, the rate of a small drain
// would be lower than that of a large one.
var drainStep = step{name: "drain from the first task", run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
	counting := &countingQueue{Queue: q}
	_, err := o.Drain(ctx, counting, o.Backlog)
	p := counting.progress()
	return load.Rate{Tasks: o.Backlog, Took: p.Last.Sub(p.First)}, err
}}

// measureBacklog drains several small backlogs and a large one in the same store. In a new store the first tasks are
// slower, which would slow down a small backlog more than a large one.
func (s *scaleBench) measureBacklog(ctx context.Context) error {
	type backlog struct{ tasks, times int }
	k := &retainedStore{place: emptyPlace, system: empty}
	if err := k.fill(ctx, s); err != nil {
		return err
	}
	for round := range s.rounds {
		for _, b := range order([]backlog{{s.small, s.drains}, {s.large, 1}}, round) {
			var all load.Rate
			for range b.times {
				rate, err := s.drainOf(ctx, k, b.tasks)
				if err != nil {
					return err
				}
				all.Tasks += rate.Tasks
				all.Took += rate.Took
			}
			s.record(round, backlogCondition(b.tasks), drain, all.PerSecond())
		}
	}
	return nil
}

// backlogCondition returns the name of the condition with that many tasks.
func backlogCondition(tasks int) string { return formatNumber(float64(tasks)) + " waiting tasks" }

// drainOf stores a number of tasks, measures how fast one worker drains them, and deletes them.
func (s *scaleBench) drainOf(ctx context.Context, k *retainedStore, tasks int) (rate load.Rate, err error) {
	o := scale{Options: s.Options, Backlog: tasks}
	fill := stepOf("fill")
	fill.startsEmpty = false
	if _, err = runStep[figures](ctx, k.system, fill, o); err != nil {
		return rate, err
	}
	if rate, err = runStep[load.Rate](ctx, k.system, drainStep, o); err != nil {
		return rate, err
	}
	return rate, k.restore(ctx, s)
}

func (s *scaleBench) backlogSection() string {
	c := comparison{"drained", []string{backlogCondition(s.small), backlogCondition(s.large)}, []goal{{measure: drain, least: 0.9}}}
	return fmt.Sprintf("How fast one worker drains a backlog, from the first task to the last. In each round, %d small backlogs are drained one "+
		"after another, and their times are added. Finished tasks are deleted before the next drain.\n\n%s", s.drains, c.table(s.found))
}
