package measure

import (
	"strings"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	t.Parallel()
	var hundred []float64
	for n := 100; n >= 1; n-- {
		hundred = append(hundred, float64(n))
	}
	for name, test := range map[string]struct {
		samples        []float64
		p50, p99, most float64
	}{
		"one":         {[]float64{7}, 7, 7, 7},
		"two":         {[]float64{2, 1}, 1, 2, 2},
		"three":       {[]float64{3, 1, 2}, 2, 3, 3},
		"one hundred": {hundred, 50, 99, 100},
		"all equal":   {[]float64{4, 4, 4, 4}, 4, 4, 4},
	} {
		f := Figure{Samples: test.samples}
		if p50, p99, most := f.Quantile(0.5), f.Quantile(0.99), f.Quantile(1); p50 != test.p50 || p99 != test.p99 || most != test.most {
			t.Errorf("%s: p50 %g, p99 %g, maximum %g, want %g, %g, %g", name, p50, p99, most, test.p50, test.p99, test.most)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	err := WriteReport(&text, Conditions{Command: "make recovery", Version: "v1", PostgreSQL: "PostgreSQL 17", Broker: "RabbitMQ 4", Began: time.Unix(0, 0), Took: time.Minute}, []Figure{
		{Name: "A", What: "a kill", Backend: "servers", Unit: seconds, Samples: []float64{0.3, 0.25, 1.5}},
		{Name: "B", What: "a flood", Backend: "servers", Unit: percent, Samples: []float64{12.4}},
		{Name: "A", What: "a kill", Backend: "one file", Unit: seconds, Samples: []float64{0.0124}},
	})
	if err != nil {
		t.Fatal(err)
	}
	table := `
| **A** | | | | | |
| a kill | servers | 3 | 0.30 s | 1.50 s | 1.50 s |
| a kill | one file | 1 | 12 ms | 12 ms | 12 ms |
| **B** | | | | | |
| a flood | servers | 1 | 12 % | 12 % | 12 % |
`
	for _, want := range []string{table, "`make recovery`", "PostgreSQL 17 and RabbitMQ 4", "v1"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report does not have %q:\n%s", want, text.String())
		}
	}
}
