package surface

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/doctor"
)

// Problem is a check of the broker that failed or that warns.
type Problem struct {
	Name    string          `json:"name"`
	Result  doctor.Severity `json:"result"`
	Problem string          `json:"problem"`
	Remedy  string          `json:"remedy"`
}

// BrokerProblems checks the broker. It returns failed checks and warnings, and the number of failed checks. hint
// returns the text of a hint.
func BrokerProblems(ctx context.Context, b *app.Backend, hint func(holdfast.Hint) string) (problems []Problem, failed int, err error) {
	checks, err := b.CheckBroker(ctx)
	problems = []Problem{}
	for _, c := range checks {
		switch c.Severity {
		case doctor.Failed:
			failed++
		case doctor.OK, doctor.Skipped:
			continue
		}
		problems = append(problems, Problem{c.Name, c.Severity, c.Detail, hint(c.Remedy)})
	}
	return problems, failed, err
}
