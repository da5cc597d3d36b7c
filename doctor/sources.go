package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

const (
	// A source is behind if more slices than maxSlicesBehind can be pulled, for longer than maxBehind.
	maxSlicesBehind = 10
	maxBehind       = time.Hour
)

// sources has the names of the sources with problems, and details of the first source with each.
type sources struct {
	defaults              plan.Source
	unknown, dead, behind []string
	deadSlices            int           // of the first source with dead slices
	deadKey               string        // of the tasks of that source
	behindBy              time.Duration // of the source that is behind the most
}

// examineSources checks that sources are pulled in time, and that no slices wait for a person.
func (e *examination) examineSources(ctx context.Context, now time.Time) {
	var all []store.Plan
	var found sources
	_, err := e.plans(ctx, store.SourceKind, func(p store.Plan) {
		if p.Name != plan.DefaultSource {
			all = append(all, p)
		} else if s, _, err := plan.ReadSource(p); err == nil {
			found.defaults = s
		} else {
			found.unknown = append(found.unknown, p.Name)
		}
	})
	if err != nil {
		e.failed("sources", err, holdfast.HintRetry)
		return
	}
	for _, p := range all {
		found.add(p, now)
	}
	e.reportSources(found, len(all))
}

// add sorts a source into the lists of problems that it has.
func (s *sources) add(p store.Plan, now time.Time) {
	spec, progress, err := plan.ReadSource(p)
	if err != nil {
		s.unknown = append(s.unknown, p.Name)
		return
	}
	spec = spec.Effective(s.defaults)
	if progress.Dead > 0 {
		if len(s.dead) == 0 {
			s.deadSlices, s.deadKey = progress.Dead, p.Name
			if spec.BackfillOf != "" {
				s.deadKey = spec.BackfillOf
			}
		}
		s.dead = append(s.dead, p.Name)
	}
	if spec.BackfillOf != "" || spec.Every == nil { // a backfill is pulled as fast as its limits allow
		return
	}
	if behind := spec.Behind(progress, now); behind > maxSlicesBehind*time.Duration(*spec.Every)+maxBehind {
		s.behind, s.behindBy = append(s.behind, p.Name), max(s.behindBy, behind)
	}
}

// reportSources adds a check for each kind of problem, or one if there is none.
func (e *examination) reportSources(s sources, stored int) {
	add := func(remedy holdfast.Hint, format string, args ...any) {
		e.add(Check{Name: "sources", Severity: Warning, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	if len(s.unknown) > 0 {
		add(holdfast.Advice("start janitors of the newer version; this version stores no slices of these sources"),
			"a newer version has stored %s: %s", counted(int64(len(s.unknown)), "source", "sources"), few(s.unknown))
	}
	if len(s.dead) > 0 {
		detail := fmt.Sprintf("the source %s has %s", s.dead[0], counted(int64(s.deadSlices), "dead slice", "dead slices"))
		if others := s.dead[1:]; len(others) > 0 {
			detail += "; others have dead slices, too: " + few(others)
		}
		add(holdfast.Hint{Kind: holdfast.HintDeadSlices, Arg: s.deadKey}, "%s", detail)
	}
	if len(s.behind) > 0 {
		add(holdfast.Hint{Kind: holdfast.HintSourceBehind, Arg: s.behind[0]}, "%s behind by up to %s: %s",
			counted(int64(len(s.behind)), "source is", "sources are"), s.behindBy.Round(time.Second), few(s.behind))
	}
	e.okUnless("sources", "%s, none is behind, and none has dead slices", counted(int64(stored), "source is stored", "sources are stored"))
}
