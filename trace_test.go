package holdfast_test

import (
	"testing"

	"github.com/holdfastq/holdfast"
)

func TestTraceIDs(t *testing.T) {
	t.Parallel()
	trace, span := holdfast.TraceIDs(traceContext + " vendor=1")
	if trace != "4bf92f3577b34da6a3ce929d0e0e4736" || span != "00f067aa0ba902b7" {
		t.Errorf("the ids are %q and %q", trace, span)
	}
	for _, wrong := range []string{"", "00-", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"} {
		if trace, span := holdfast.TraceIDs(wrong); trace != "" || span != "" {
			t.Errorf("%q has the ids %q and %q", wrong, trace, span)
		}
	}
}
