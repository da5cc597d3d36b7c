package janitor

import (
	"context"
	"time"
)

const (
	deathsEvery = time.Minute
	deathsBatch = 500
)

// recordDeaths makes the records of deaths agree with the dead tasks. Apply writes these records, so recordDeaths has
// work only after a restore, an import or a change by hand.
func (j *Janitor) recordDeaths(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "deaths", deathsEvery)
	if err != nil || !myTurn {
		return err
	}
	for {
		n, err := j.o.Desk.RecordDeaths(ctx, deathsBatch)
		if err != nil {
			return err
		}
		if n < deathsBatch {
			return nil
		}
	}
}
