package serverurl_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/serverurl"
)

const complete = "postgres://me:secret@db.example:5433/app?sslmode=require"

func TestEnvironmentFollowsTheRulesOfTheURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ address, env, ignored, wrong string }{
		{complete, "PGHOST=other PGPORT=none PGUSER=x PGSSLMODE=never PATH=/bin", "", ""}, // the URL has these parameters
		{complete, "PGGSSENCMODE=disable PGCHANNELBINDING=require PGREQUIREPEER=root PGSSLCRL=/a PGREQUIREAUTH=scram-sha-256", "PGCHANNELBINDING PGGSSENCMODE PGREQUIREAUTH PGREQUIREPEER PGSSLCRL", ""},
		{complete, "PGGSSENCMODE=", "", ""},
		{complete, "PGKRBSRVNAME=postgres PGREALM=a PGSSLCOMPRESSION=1 PGREQUIRESSL=1 PGGSSLIB=a PGGSSDELEGATION=1 PGSSLCRLDIR=/a PGSSLCERTMODE=allow", "PGGSSDELEGATION PGGSSLIB PGKRBSRVNAME PGREALM PGREQUIRESSL PGSSLCERTMODE PGSSLCOMPRESSION PGSSLCRLDIR", ""},
		{complete, "PGGSSENCMODE=require", "", "environment variable PGGSSENCMODE must be disable, prefer"},
		{complete, "PGSSLCERTMODE=require", "", "environment variable PGSSLCERTMODE must be"},
		{complete, "PGCONNECT_TIMEOUT=soon", "", "environment variable PGCONNECT_TIMEOUT must be a number of seconds"},
		{"postgres://db.example/app", "PGSSLMODE=never", "", "environment variable PGSSLMODE must be disable"},
		{"postgres://db.example/app", "PGPORT=none", "", "environment variable PGPORT must be a port number"},
		{complete + "&gssencmode=disable", "PGGSSENCMODE=require", "", ""},
	} {
		ignored, err := serverurl.Environment(test.address, strings.Fields(test.env))
		if got := strings.Join(slices.Sorted(maps.Keys(ignored)), " "); got != test.ignored {
			t.Errorf("%s: ignores %q, want %q", test.env, got, test.ignored)
		}
		if (err != nil) != (test.wrong != "") || err != nil && !strings.HasPrefix(err.Error(), test.wrong) {
			t.Errorf("%s: %v, want %q", test.env, err, test.wrong)
		}
	}
}

// The variables are hidden only while the function runs.
func TestHiddenVariablesReturn(t *testing.T) {
	before := map[string]string{"PGHOST": "other", "PGGSSENCMODE": "disable", "PGAPPNAME": "app", "PGSSLCRL": ""}
	for name, value := range before {
		t.Setenv(name, value)
	}
	ignored, err := serverurl.Environment(complete, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	serverurl.HideEnvironment(complete, ignored, func() {
		for name := range before {
			if _, set := os.LookupEnv(name); set != (name == "PGAPPNAME") {
				t.Errorf("%s is set: %t", name, set)
			}
		}
	})
	for name, value := range before {
		if got, set := os.LookupEnv(name); !set || got != value {
			t.Errorf("%s is %q, %t", name, got, set)
		}
	}
}
