package daemon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// collector publishes gauges about the whole system. Every process reads the same numbers from the store when a client
// reads its metrics. While the store does not answer, a collector publishes nothing.
type collector struct {
	descs map[string]*prometheus.Desc // by name
	read  func(context.Context, setter) error
}

// setter sets a gauge. labels are the values of its labels.
type setter func(name string, value float64, labels ...string)

// gauge describes a gauge.
type gauge struct {
	name, help string
	labels     []string
}

func newCollector(gauges []gauge, read func(context.Context, setter) error) *collector {
	c := &collector{make(map[string]*prometheus.Desc), read}
	for _, g := range gauges {
		c.descs[g.name] = prometheus.NewDesc(g.name, g.help, g.labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	var found []prometheus.Metric
	err := c.read(ctx, func(name string, value float64, labels ...string) {
		found = append(found, prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, value, labels...))
	})
	if err != nil {
		return
	}
	for _, metric := range found {
		to <- metric
	}
}

// registerCollectors registers the collectors of the gauges about the whole system. Those of queues need a process with a
// janitor.
func registerCollectors(registry prometheus.Registerer, b *app.Backend, janitor bool) {
	registry.MustRegister(newVerifyCollector(b.Store.VerifyResults), newGroupCollector(b.Store.CountDeathGroups),
		newGateCollector(b.Store), newScheduleCollector(b.Store.DuePlans), newSourceCollector(b.Sources, b.Store.Now),
		newBatchCollector(b.Store.ListPlans))
	if janitor { // hundreds of workers would read the same
		registry.MustRegister(newQueueCollector(b.Store))
	}
	if store, ok := b.Store.(walStore); ok {
		registry.MustRegister(newWALCollector(store))
	}
}

// newGroupCollector publishes the number of groups of dead tasks that are not resolved.
func newGroupCollector(count func(context.Context) (store.GroupCounts, error)) *collector {
	const groups = "holdfast_dead_groups"
	return newCollector([]gauge{
		{groups, "Groups of dead tasks that are not resolved, in the whole system.", []string{"state"}},
	}, func(ctx context.Context, set setter) error {
		counts, err := count(ctx)
		set(groups, float64(counts.Open), string(store.GroupOpen))
		set(groups, float64(counts.Returned), string(store.GroupReturned))
		return err
	})
}

// newVerifyCollector publishes the newest results of the checks for tasks that break an invariant. Before a janitor has
// checked a part completely, the collector publishes nothing about the part.
func newVerifyCollector(read func(context.Context) ([]store.VerifyResult, error)) *collector {
	const tasks, age = "holdfast_verify_tasks", "holdfast_verify_age_seconds"
	return newCollector([]gauge{
		{tasks, "Tasks that break an invariant, in the whole system.", []string{"kind", "code"}},
		{age, "Time since a janitor has checked this part of the tasks completely.", []string{"part"}},
	}, func(ctx context.Context, set setter) error {
		results, err := read(ctx)
		for _, result := range results {
			if result.Incomplete {
				continue
			}
			set(age, result.Age.Seconds(), string(result.Part))
			found := make(map[store.FaultCode]int)
			for _, count := range result.Counts {
				found[count.Code] = count.Tasks
			}
			for _, fault := range store.Faults() {
				if fault.Part == result.Part {
					set(tasks, float64(found[fault.Code]), string(fault.Kind), string(fault.Code))
				}
			}
		}
		return err
	})
}

const (
	// maxCountedLate is the maximum of the gauge of late schedules, because the store returns each of them.
	maxCountedLate = 1000
	// maxStepDelay is a delay that no step of a schedule has while a janitor works.
	maxStepDelay = time.Minute
)

// newScheduleCollector publishes the number of schedules whose step is late. due is DuePlans of a store.
func newScheduleCollector(due func(ctx context.Context, kinds []store.PlanKind, within time.Duration, limit int) ([]store.Plan, error)) *collector {
	const late = "holdfast_schedules_late"
	return newCollector([]gauge{
		{late, "Running schedules that should have stored a task more than a minute ago, in the whole system. At most 1,000 are counted.", nil},
	}, func(ctx context.Context, set setter) error {
		found, err := due(ctx, []store.PlanKind{store.ScheduleKind}, -maxStepDelay, maxCountedLate)
		set(late, float64(len(found)))
		return err
	})
}

// maxCountedSources is the maximum number of sources with gauges, because the store returns each of them.
const maxCountedSources = 1000

// newSourceCollector publishes how far each source is behind and how many of its slices are dead. list is Sources of a
// backend, and now is Now of its store. A backfill has no lag, because it is pulled as fast as its limits allow. The
// gauge of dead slices lists a backfill only while it has a dead slice.
func newSourceCollector(
	list func(ctx context.Context, after string, limit int) ([]app.Source, error), now func(context.Context) (time.Time, error),
) *collector {
	const lag, late, dead = "holdfast_slice_lag_seconds", "holdfast_source_late", "holdfast_slices_dead"
	return newCollector([]gauge{
		{lag, "Time from the end of the slices that are done to the latest time that the source may pull. At most 1,000 sources have these gauges.", []string{"source"}},
		{late, "1 if the source is behind by more than three slices and more than a minute, else 0.", []string{"source"}},
		{dead, "Dead slices of the source.", []string{"source"}},
	}, func(ctx context.Context, set setter) error {
		sources, err := list(ctx, "", maxCountedSources)
		if err != nil || len(sources) == 0 {
			return err
		}
		at, err := now(ctx)
		for _, s := range sources {
			switch {
			case s.Name == plan.DefaultSource, s.Spec.BackfillOf != "" && s.Progress.Dead == 0:
				continue
			case s.Spec.BackfillOf == "":
				set(lag, s.Lag(at).Seconds(), s.Name)
				set(late, map[bool]float64{true: 1}[s.Late(at)], s.Name)
			}
			set(dead, float64(s.Progress.Dead), s.Name)
		}
		return err
	})
}

// maxCountedBatches is the maximum number of batches in the gauge, because the store returns each of them.
const maxCountedBatches = 1000

// newBatchCollector publishes the number of batches that have not ended. list is ListPlans of a store.
func newBatchCollector(list func(context.Context, store.PlanFilter) ([]store.Plan, error)) *collector {
	const batches = "holdfast_batches"
	return newCollector([]gauge{
		{batches, "Batches that have not ended, in the whole system. At most 1,000 are counted.", []string{"state"}},
	}, func(ctx context.Context, set setter) error {
		found, err := list(ctx, store.PlanFilter{Kind: store.BatchKind, Limit: maxCountedBatches})
		counts := make(map[store.PlanState]int)
		for _, p := range found {
			counts[p.State]++
		}
		for _, state := range []store.PlanState{store.PlanRunning, store.PlanPaused, store.PlanStopped} {
			set(batches, float64(counts[state]), string(state))
		}
		return err
	})
}
