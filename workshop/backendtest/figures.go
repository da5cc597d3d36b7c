package backendtest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// Minutes stores figures of a queue in a minute of the past, in a store on a file. The contract writes only the present
// minute, so Minutes writes the rows of the table.
func Minutes(t testing.TB, s desk.Store, minutes map[time.Time][]store.Figure) {
	t.Helper()
	var rows []string
	for minute, figures := range minutes {
		for _, f := range figures {
			rows = append(rows, fmt.Sprintf("('%s', '%s', %d, %d)", f.Queue, f.Kind, minute.Truncate(time.Minute).UnixMicro(), f.N))
		}
	}
	request := store.Request{Scope: "test", Key: fmt.Sprint("figures ", rand.Uint64())}
	_, err := s.Once(t.Context(), request, func(ctx context.Context, tx store.Tx) (answer store.Answer, err error) {
		for len(rows) > 0 && err == nil {
			part := rows[:min(len(rows), 500)]
			_, err = tx.ExecContext(ctx, "insert into figures (queue, figure, minute, n) values "+strings.Join(part, ", ")+" on conflict do nothing")
			rows = rows[len(part):]
		}
		return answer, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Day stores the figures of a busy day until now, the same for each call: a peak at noon, a burst of failures with a
// growing queue, a worker that died, and a gap of half an hour.
func Day(t testing.TB, s desk.Store, now time.Time) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	minutes := make(map[time.Time][]store.Figure)
	const day = 24 * 60
	for i := range day {
		if ago := day - i; ago > 700 && ago < 730 { // a stop for maintenance
			continue
		}
		x := float64(i) / day
		noise := func(n float64) float64 { return n * (0.9 + 0.2*random.Float64()) }
		succeeded, failed := noise(9000+7000*math.Sin(2*math.Pi*(x-0.2))), noise(60)
		ready, running, oldest := noise(120), noise(64), noise(400)
		switch ago := day - i; {
		case ago < 45 && ago >= 25: // a target fails
			failed += noise(60 * float64(45-ago))
			ready += noise(150 * float64(45-ago))
			oldest += noise(4000 * float64(45-ago))
		case ago < 25 && ago >= 15: // it is back
			succeeded += noise(3000)
			ready += noise(300 * float64(ago-15))
			oldest += noise(8000 * float64(ago-15))
		case ago < 900 && ago > 860:
			ready += noise(4000)
			oldest += noise(30000)
		}
		of := func(queue string, share float64) []store.Figure {
			var list []store.Figure
			for kind, n := range map[store.FigureKind]float64{
				store.FigureSucceeded: succeeded, store.FigureFailed: failed, store.FigureReady: ready, store.FigureRunning: running,
			} {
				list = append(list, store.Figure{Queue: queue, Kind: kind, N: int64(n * share)})
			}
			return append(list, store.Figure{Queue: queue, Kind: store.FigureOldest, N: int64(oldest)})
		}
		list := append(of(store.AllQueues, 1), of("mail", 0.7)...)
		if i == day-200 {
			list = append(list, store.Figure{Kind: store.FigureRecovered, N: 96}, store.Figure{Kind: store.FigureFenced, N: 3}, store.Figure{Queue: "mail", Kind: store.FigureRecovered, N: 96})
		}
		minutes[now.Add(time.Duration(i-day)*time.Minute)] = list
	}
	Minutes(t, s, minutes)
}
