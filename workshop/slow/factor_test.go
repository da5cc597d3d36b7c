package slow

import (
	"testing"
	"time"
)

func TestMeasuredRaisesTheFactor(t *testing.T) {
	before := Factor()
	if before < 1 || before > maxFactor {
		t.Fatalf("the factor is %v, want 1 to %d", before, maxFactor)
	}
	Measured(time.Second, time.Minute)
	if after := Times(time.Hour); after < time.Hour {
		t.Errorf("a fast action shortens an hour to %s", after)
	}
	Measured(time.Minute, time.Second)
	if after := Factor(); after != maxFactor {
		t.Errorf("after an action that took 60 times as long as usual, the factor is %v, want %d", after, maxFactor)
	}
	if got, want := Patience(), maxFactor*3*time.Minute; got != want {
		t.Errorf("Patience returns %s, want %s", got, want)
	}
}

func TestFactorOfTheLoad(t *testing.T) {
	for _, c := range []struct {
		text  string
		cores int
		want  float64
	}{
		{"24.00 5.20 2.00 5/300 1234\n", 2, 4},
		{"0.75 0.10 0.00 1/100 99\n", 1, 0.25},
		{"", 2, 1},
		{"no number", 2, 1},
	} {
		if got := loadOf(c.text, c.cores); got != c.want {
			t.Errorf("loadOf(%q, %d) is %v, want %v", c.text, c.cores, got, c.want)
		}
	}
}
