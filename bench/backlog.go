package main

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast/internal/load"
)

// drainStep is a drain without the worker's start, which would weigh more in a small one.
var drainStep = step{name: "drain from the first task", run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
	c := &counted{Queue: q}
	_, err := o.Drain(ctx, c, o.Backlog)
	p := c.progress()
	return load.Rate{Tasks: o.Backlog, Took: p.Last.Sub(p.First)}, err
}}

// measureBacklog drains several small backlogs and a large one, in a store that all of them share: what is slow only at
// first in a new one would weigh more on the small.
func (s *scaling) measureBacklog(ctx context.Context) error {
	type backlog struct{ tasks, times int }
	k := &keeping{place: emptyPlace, system: empty}
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
			s.see(round, waiting(b.tasks), drain, all.PerSecond())
		}
	}
	return nil
}

// waiting names a condition.
func waiting(tasks int) string { return human(float64(tasks)) + " waiting tasks" }

func (s *scaling) drainOf(ctx context.Context, k *keeping, tasks int) (rate load.Rate, err error) {
	o := scale{Options: s.Options, Backlog: tasks}
	fill := stepOf("fill")
	fill.fresh = false
	if _, err = take[figures](ctx, k.system, fill, o); err != nil {
		return rate, err
	}
	if rate, err = take[load.Rate](ctx, k.system, drainStep, o); err != nil {
		return rate, err
	}
	return rate, k.restore(ctx, s)
}

func (s *scaling) backlogSection() string {
	c := contrast{"drained", []string{waiting(s.small), waiting(s.large)}, []goal{{measure: drain, least: 0.9}}}
	return fmt.Sprintf("How fast one worker drains what it finds waiting, from its first task to its last. Of the small backlog, %d are drained one "+
		"after the other in every round, and their times are added. What was drained is deleted before the next.\n\n%s", s.drains, c.table(s.found))
}
