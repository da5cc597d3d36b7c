package daemon

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast/store"
)

// verifyCollector publishes the newest results of the check for tasks that break an invariant. One janitor at a time
// checks; every process publishes the same results, and reads them when its metrics are read.
type verifyCollector struct {
	results func(context.Context) ([]store.VerifyResult, error)
	tasks   *prometheus.Desc
	age     *prometheus.Desc
}

func newVerifyCollector(results func(context.Context) ([]store.VerifyResult, error)) *verifyCollector {
	return &verifyCollector{
		results: results,
		tasks: prometheus.NewDesc("holdfast_verify_tasks",
			"Tasks that break an invariant, in the whole system.", []string{"kind", "code"}, nil),
		age: prometheus.NewDesc("holdfast_verify_age_seconds",
			"Time since a janitor has checked this part of the tasks completely.", []string{"part"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (v *verifyCollector) Describe(to chan<- *prometheus.Desc) {
	to <- v.tasks
	to <- v.age
}

// Collect implements prometheus.Collector. While the store does not answer, and before the first complete check of a
// part, it publishes nothing about the part.
func (v *verifyCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	results, err := v.results(ctx)
	if err != nil {
		return
	}
	for _, result := range results {
		if result.Incomplete {
			continue
		}
		to <- prometheus.MustNewConstMetric(v.age, prometheus.GaugeValue, result.Age.Seconds(), string(result.Part))
		found := make(map[store.FaultCode]int)
		for _, count := range result.Counts {
			found[count.Code] = count.Tasks
		}
		for _, fault := range store.Faults() {
			if fault.Part == result.Part {
				to <- prometheus.MustNewConstMetric(v.tasks, prometheus.GaugeValue, float64(found[fault.Code]), string(fault.Kind), string(fault.Code))
			}
		}
	}
}
