package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestVerifyMetrics(t *testing.T) {
	t.Parallel()
	results := []store.VerifyResult{
		{Part: store.VerifyDue, Age: 1500 * time.Millisecond},
		{Part: store.VerifyOutbox, Incomplete: true},
		{Part: store.VerifyTickets, Counts: []store.FaultCount{{Code: store.LostTicket, Tasks: 3, Samples: []holdfast.TaskID{1}}}},
	}
	var err error
	registry := prometheus.NewRegistry()
	registry.MustRegister(newVerifyCollector(func(context.Context) ([]store.VerifyResult, error) { return results, err }))
	want := []string{
		"holdfast_verify_age_seconds due 1.5", "holdfast_verify_age_seconds tickets 0",
		"holdfast_verify_tasks lost_ticket lost 3", "holdfast_verify_tasks overdue_dispatch overdue 0", "holdfast_verify_tasks overdue_ticket overdue 0",
	}
	if got := gauges(t, registry); !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
	err = errors.New("the store does not answer")
	if got := gauges(t, registry); len(got) > 0 {
		t.Errorf("without a store: %q", got)
	}
}

// gauges returns all gauges, each with the values of its labels in the order of their names.
func gauges(t *testing.T, registry *prometheus.Registry) (list []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			text := family.GetName()
			for _, label := range metric.GetLabel() {
				text += " " + label.GetValue()
			}
			list = append(list, fmt.Sprint(text, " ", metric.GetGauge().GetValue()))
		}
	}
	return list
}
