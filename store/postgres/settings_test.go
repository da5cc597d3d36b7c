package postgres

import (
	"maps"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
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
		judge func(keeping) holdfast.Finding
		grade holdfast.Grade
		text  string
	}{
		"new":                {keeping{version: "18beta1"}, keeping.versionFinding, holdfast.GradeOK, "PostgreSQL 18beta1"},
		"of Debian":          {keeping{version: "15.14 (Debian 15.14-0+deb12u1)"}, keeping.versionFinding, holdfast.GradeOK, "15.14"},
		"too old":            {keeping{version: "12.22"}, keeping.versionFinding, holdfast.GradeFailed, "13 or later"},
		"odd":                {keeping{version: "?"}, keeping.versionFinding, holdfast.GradeOK, "?"},
		"primary":            {keeping{settings: sound}, keeping.primaryFinding, holdfast.GradeOK, ""},
		"standby":            {keeping{settings: sound, standby: true}, keeping.primaryFinding, holdfast.GradeFailed, "target_session_attrs"},
		"read-only":          {keeping{settings: with("default_transaction_read_only", "on")}, keeping.primaryFinding, holdfast.GradeFailed, "read-only"},
		"durable":            {keeping{settings: sound}, keeping.durabilityFinding, holdfast.GradeOK, ""},
		"no fsync":           {keeping{settings: with("fsync", "off")}, keeping.durabilityFinding, holdfast.GradeFailed, "fsync"},
		"asynchronous":       {keeping{settings: with("synchronous_commit", "off")}, keeping.durabilityFinding, holdfast.GradeFailed, "accepted last"},
		"torn pages":         {keeping{settings: with("full_page_writes", "off")}, keeping.durabilityFinding, holdfast.GradeWarning, "full_page_writes"},
		"local":              {keeping{settings: with("synchronous_commit", "local", "synchronous_standby_names", "*")}, keeping.durabilityFinding, holdfast.GradeWarning, "replicas"},
		"local, no replicas": {keeping{settings: with("synchronous_commit", "local")}, keeping.durabilityFinding, holdfast.GradeOK, ""},
		"replicas behind":    {keeping{settings: sound, replicas: 2}, keeping.durabilityFinding, holdfast.GradeWarning, "synchronous_standby_names"},
		"one is waited for":  {keeping{settings: sound, replicas: 2, synced: 1}, keeping.durabilityFinding, holdfast.GradeOK, ""},
		"direct":             {keeping{settings: with()}, keeping.poolerFinding, holdfast.GradeOK, "session of its own"},
		"lent":               {keeping{settings: standard, pooling: lentSession}, keeping.poolerFinding, holdfast.GradeWarning, "database.direct_url"},
		"lent, direct too":   {keeping{settings: standard, pooling: lentSession, sessions: true}, keeping.poolerFinding, holdfast.GradeOK, "tracks"},
		"lent, not set":      {keeping{settings: standard.with(settings{"jit": "on"}), pooling: lentSession, sessions: true, role: "app"}, keeping.poolerFinding, holdfast.GradeWarning, "lack jit = 'off'set them with: alter role \"app\""},
	} {
		got := c.judge(c.kept)
		if got.Grade != c.grade || !strings.Contains(got.Detail+got.Remedy, c.text) || (got.Grade == holdfast.GradeOK) != (got.Remedy == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
