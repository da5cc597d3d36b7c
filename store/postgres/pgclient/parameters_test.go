package pgclient

import (
	"slices"
	"strings"
	"testing"
)

// A transaction may run with any search_path, so each statement must name the schema.
func TestOwnStatementsNameTheSchema(t *testing.T) {
	t.Parallel()
	for name, text := range ownStatements("odd_name") {
		if strings.Contains(text, "holdfast.") || strings.Contains(text, "{{") || strings.Contains(text, "--") ||
			strings.Contains(text, "from migrations") {
			t.Errorf("%s contains a placeholder, a comment or a table without a schema: %s", name, text)
		}
	}
}

func TestLackingParameters(t *testing.T) {
	t.Parallel()
	if lacking := standard.Lacking(); len(lacking) > 0 {
		t.Errorf("the standard parameters lack %q", lacking)
	}
	if got, want := standard.with(Parameters{"jit": "on", "tcp_user_timeout": "0"}).Lacking(), []string{"jit = 'off'"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
