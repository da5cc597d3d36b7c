package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
)

// teardown is a stack of named steps. The last step runs first.
type teardown []step

type step struct {
	name  string
	limit time.Duration
	stop  func(context.Context) error
}

func (t *teardown) push(name string, limit time.Duration, stop func(context.Context) error) {
	*t = append(*t, step{name, limit, stop})
}

// run runs every step with its own time limit. After an error it continues. It returns all errors joined.
func (t *teardown) run(log logrus.FieldLogger) error {
	var errs []error
	for i := len(*t) - 1; i >= 0; i-- {
		s := (*t)[i]
		ctx, cancel := context.WithTimeout(context.Background(), s.limit) // the caller's context has ended
		began := time.Now()
		if err := s.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
		cancel()
		log.WithField("part", s.name).WithField("took", time.Since(began).Round(time.Millisecond)).Debug("stopped")
	}
	return errors.Join(errs...)
}
