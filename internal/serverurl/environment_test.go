package serverurl_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast/internal/serverurl"
)

const complete = "postgres://me:secret@db.example:5433/app?sslmode=require"

// setAll sets variables for a test, and removes all other variables of PostgreSQL.
func setAll(t *testing.T, pairs string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, value) // restores it after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pair := range strings.Fields(pairs) {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

func TestEnvironmentFollowsTheRulesOfTheURL(t *testing.T) {
	for name, test := range map[string]struct{ address, env, ignored, wrong string }{
		"the URL has these parameters": {complete, "PGHOST=other PGPORT=none PGUSER=x PGSSLMODE=never", "", ""},
		"ignored":                      {complete, "PGGSSENCMODE=disable PGCHANNELBINDING=require PGREQUIREPEER=root PGSSLCRL=/a PGREQUIREAUTH=scram-sha-256", "PGCHANNELBINDING PGGSSENCMODE PGREQUIREAUTH PGREQUIREPEER PGSSLCRL", ""},
		"empty":                        {complete, "PGGSSENCMODE=", "", ""},
		"ignored, and obsolete":        {complete, "PGKRBSRVNAME=postgres PGREALM=a PGSSLCOMPRESSION=1 PGREQUIRESSL=1 PGGSSLIB=a PGGSSDELEGATION=1 PGSSLCRLDIR=/a PGSSLCERTMODE=allow", "PGGSSDELEGATION PGGSSLIB PGKRBSRVNAME PGREALM PGREQUIRESSL PGSSLCERTMODE PGSSLCOMPRESSION PGSSLCRLDIR", ""},
		"GSSAPI":                       {complete, "PGGSSENCMODE=require", "", "environment variable PGGSSENCMODE must be disable, prefer"},
		"a certificate":                {complete, "PGSSLCERTMODE=require", "", "environment variable PGSSLCERTMODE must be"},
		"a timeout":                    {complete, "PGCONNECT_TIMEOUT=soon", "", "environment variable PGCONNECT_TIMEOUT must be a number of seconds"},
		"TLS":                          {complete, "PGSSLMINPROTOCOLVERSION=TLSv9", "", "environment variable PGSSLMINPROTOCOLVERSION must be TLSv1.0"},
		"a mode":                       {"postgres://db.example/app", "PGSSLMODE=never", "", "environment variable PGSSLMODE must be disable"},
		"a port":                       {"postgres://db.example/app", "PGPORT=none", "", "environment variable PGPORT must be a port number"},
		"a list":                       {"host=a port=5432", "PGPORT=none PGHOST=b", "", ""},
		"the URL decides":              {complete + "&gssencmode=disable", "PGGSSENCMODE=require", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			setAll(t, test.env)
			called := false
			ignored, err := serverurl.WithEnvironment(test.address, func() error { called = true; return nil })
			if got := strings.Join(slices.Sorted(maps.Keys(ignored)), " "); got != test.ignored {
				t.Errorf("ignores %q, want %q", got, test.ignored)
			}
			if (err != nil) != (test.wrong != "") || err != nil && !strings.HasPrefix(err.Error(), test.wrong) || called == (err != nil) {
				t.Errorf("%v, want %q; called: %t", err, test.wrong, called)
			}
		})
	}
}

// Only what the driver would refuse is removed, and only while the function runs, also if several goroutines call it.
func TestOnlyRefusedVariablesAreRemoved(t *testing.T) {
	const env = "PGHOST=other PGPORT=none PGGSSENCMODE=disable PGAPPNAME=app PGSSLCRL=/a PGTZ=Nowhere/X PGPASSWORD=x"
	setAll(t, env)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for range 200 {
				_, err := serverurl.WithEnvironment(complete+"&timezone=UTC", func() error {
					var kept []string
					for _, pair := range os.Environ() {
						if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "PG") {
							kept = append(kept, name)
						}
					}
					slices.Sort(kept)
					if !slices.Equal(kept, []string{"PGAPPNAME", "PGHOST", "PGPASSWORD"}) {
						t.Errorf("the environment has %v", kept)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	for _, pair := range strings.Fields(env) {
		if name, value, _ := strings.Cut(pair, "="); os.Getenv(name) != value {
			t.Errorf("%s is %q", name, os.Getenv(name))
		}
	}
}
