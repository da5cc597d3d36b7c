package holdfast

import (
	"fmt"
	"time"
)

// BreakerRules decide when a process trips the breaker of a target, from the attempts of the process. The breaker trips
// after Faults faults in succession. It also trips if at least Attempts attempts ended within Window, and at least Rate
// percent of them were faults. If Faults and Rate are 0, the process trips no breaker. The zero value means
// DefaultBreakerRules.
type BreakerRules struct {
	Faults   int           // 0 switches the rule of successive faults off
	Rate     int           // percent, 0 to 100; 0 switches the rule of the window off
	Attempts int           // minimum number of attempts in the window
	Window   time.Duration // up to a tenth shorter in practice
}

// Limits of the window.
const (
	MinBreakerWindow = time.Second
	MaxBreakerWindow = 10 * time.Minute
)

// DefaultBreakerRules returns five faults in succession, or 70% of at least 20 attempts within 30 seconds.
func DefaultBreakerRules() BreakerRules {
	return BreakerRules{Faults: 5, Rate: 70, Attempts: 20, Window: 30 * time.Second}
}

// On reports whether any rule can trip a breaker.
func (b BreakerRules) On() bool { return b.Faults > 0 || b.Rate > 0 }

// Validate returns an [ErrInvalid] that describes a rule that is out of range, or nil.
func (b BreakerRules) Validate() error {
	switch {
	case b == BreakerRules{}:
		return nil
	case b.Faults < 0:
		return fmt.Errorf("%w: breaker: the number of faults %d is negative", ErrInvalid, b.Faults)
	case b.Rate < 0 || b.Rate > 100:
		return fmt.Errorf("%w: breaker: the rate %d%% is not between 0%% and 100%%", ErrInvalid, b.Rate)
	case b.Rate == 0:
		return nil
	case b.Attempts < 1:
		return fmt.Errorf("%w: breaker: the number of attempts %d is less than 1", ErrInvalid, b.Attempts)
	case b.Window < MinBreakerWindow || b.Window > MaxBreakerWindow:
		return fmt.Errorf("%w: breaker: the window %s is not between %s and %s", ErrInvalid, b.Window, MinBreakerWindow, MaxBreakerWindow)
	}
	return nil
}
