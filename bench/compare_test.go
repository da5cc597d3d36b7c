package main

import (
	"strings"
	"testing"
)

// A rate is better if it is higher, a time if it is shorter. The ratios are those of the rounds and not of the medians.
func TestSectionOfAComparison(t *testing.T) {
	c := &comparing{rounds: 3, found: make(results)}
	for _, m := range []struct {
		name string
		base []float64
		head []float64
	}{
		{"steady state, tasks/s", []float64{100, 200, 400}, []float64{110, 100, 480}},
		{"idle pick-up p50, ms", []float64{2, 4, 5}, []float64{4, 4, 4}},
	} {
		for i := range m.base {
			c.add(i, baseBuild, m.name, m.base[i])
			c.add(i, headBuild, m.name, m.head[i])
		}
	}
	section := c.section(filePlace)
	for _, row := range []string{
		"| steady state, tasks/s | 200 | 110 | 1.10 | 0.50 | 1.20 |",
		"| idle pick-up p50, ms | 4 | 4 | 1.00 | 0.50 | 1.25 |",
	} {
		if !strings.Contains(section, row) {
			t.Errorf("no row %q in:\n%s", row, section)
		}
	}
}

func TestEnvironmentOfAPlace(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://one")
	t.Setenv("AMQP_URL", "")
	if _, err := environment(serversPlace); err == nil {
		t.Error("servers without a broker were accepted")
	}
	if _, err := environment("elsewhere"); err == nil {
		t.Error("an unknown place was accepted")
	}
	env, err := environment(filePlace)
	if err != nil {
		t.Fatal(err)
	}
	if last := env[len(env)-2]; last != "DATABASE_URL=" {
		t.Errorf("the environment of a file ends with %q, want an empty DATABASE_URL", last)
	}
}
