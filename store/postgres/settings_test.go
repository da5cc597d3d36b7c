package postgres

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

// Most of these settings can only be made for a whole server.
func TestSettingsAreJudged(t *testing.T) {
	t.Parallel()
	sound := map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "statement_timeout": "30000"}
	with := func(pairs ...string) map[string]string {
		all := maps.Clone(sound)
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	for name, c := range map[string]struct {
		kept  keeping
		judge func(keeping) doctor.Check
		grade doctor.Severity
		text  string
	}{
		"new":                {keeping{version: "18beta1"}, keeping.versionCheck, doctor.OK, "PostgreSQL 18beta1"},
		"of Debian":          {keeping{version: "15.14 (Debian 15.14-0+deb12u1)"}, keeping.versionCheck, doctor.OK, "15.14"},
		"too old":            {keeping{version: "12.22"}, keeping.versionCheck, doctor.Failed, "13 or later"},
		"odd":                {keeping{version: "?"}, keeping.versionCheck, doctor.OK, "?"},
		"primary":            {keeping{settings: sound}, keeping.primaryCheck, doctor.OK, ""},
		"standby":            {keeping{settings: sound, standby: true}, keeping.primaryCheck, doctor.Failed, "primary"},
		"read-only":          {keeping{settings: with("default_transaction_read_only", "on")}, keeping.primaryCheck, doctor.Failed, "read-only"},
		"durable":            {keeping{settings: sound}, keeping.durabilityCheck, doctor.OK, ""},
		"no fsync":           {keeping{settings: with("fsync", "off")}, keeping.durabilityCheck, doctor.Failed, "fsync"},
		"asynchronous":       {keeping{settings: with("synchronous_commit", "off")}, keeping.durabilityCheck, doctor.Failed, "accepted last"},
		"torn pages":         {keeping{settings: with("full_page_writes", "off")}, keeping.durabilityCheck, doctor.Warning, "full_page_writes"},
		"local":              {keeping{settings: with("synchronous_commit", "local", "synchronous_standby_names", "*")}, keeping.durabilityCheck, doctor.Warning, "replicas"},
		"local, no replicas": {keeping{settings: with("synchronous_commit", "local")}, keeping.durabilityCheck, doctor.OK, ""},
		"replicas behind":    {keeping{settings: sound, replicas: 2}, keeping.durabilityCheck, doctor.Warning, "synchronous_standby_names"},
		"one is waited for":  {keeping{settings: sound, replicas: 2, synced: 1}, keeping.durabilityCheck, doctor.OK, ""},
		"direct":             {keeping{settings: with()}, keeping.poolerCheck, doctor.OK, "session of its own"},
		"lent":               {keeping{settings: standard, pooling: lentSession}, keeping.presenceCheck, doctor.Warning, "direct_url"},
		"present":            {keeping{settings: standard, pooling: lentSession, sessions: true}, keeping.presenceCheck, doctor.OK, "present"},
		"lent, direct too":   {keeping{settings: standard, pooling: lentSession, sessions: true}, keeping.poolerCheck, doctor.OK, "tracks"},
		"lent, not set":      {keeping{settings: standard.with(settings{"jit": "on"}), pooling: lentSession, sessions: true, role: "app"}, keeping.poolerCheck, doctor.Warning, "lack jit = 'off' session_settings \"app\""},
	} {
		got := c.judge(c.kept)
		if got.Severity != c.grade || !strings.Contains(fmt.Sprint(got.Detail, " ", got.Remedy.Kind, " ", got.Remedy.Arg), c.text) || (got.Severity == doctor.OK) != (got.Remedy == holdfast.Hint{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
