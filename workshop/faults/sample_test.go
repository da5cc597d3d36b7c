package faults

import "testing"

func TestTrendIsFlat(t *testing.T) {
	t.Parallel()
	series := func(at func(i int) (float64, bool)) []Sample {
		samples := make([]Sample, 50)
		for i := range samples {
			samples[i].Values = make(map[string]float64)
			if value, measured := at(i); measured {
				samples[i].Values["memory"] = value
			}
		}
		return samples
	}
	for name, c := range map[string]struct {
		at   func(i int) (float64, bool)
		flat bool
	}{
		"even":               {func(int) (float64, bool) { return 100, true }, true},
		"warm-up":            {func(i int) (float64, bool) { return float64(min(i, 10) * 10), true }, true},
		"grows":              {func(i int) (float64, bool) { return float64(100 + i), true }, false},
		"peak":               {func(i int) (float64, bool) { return map[bool]float64{true: 1000, false: 100}[i == 25], true }, true},
		"not measured late":  {func(i int) (float64, bool) { return 100, i < 40 }, false},
		"not measured early": {func(i int) (float64, bool) { return 100, i >= 40 }, false},
	} {
		trends := Trends(series(c.at))
		if len(trends) != 1 || trends[0].Flat() != c.flat {
			t.Errorf("%s: %+v", name, trends)
		}
	}
}
