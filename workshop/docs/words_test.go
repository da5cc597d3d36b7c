package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// banned are words and phrases of an earlier vocabulary, and phrases that readers stumbled over. Another word says the
// same: queue for lane, worker for run, outbox entry for receipt, and the name of the component for nobody and whoever.
var banned = regexp.MustCompile(`(?i)\b(anew|nobody|whoever|anybody|everybody|in hand|all the same|for ever|put aside|stands|` +
	`(is|are) over|a moment|shall|be it|for to|comes? and goes?|(go|goes|went|going|gone) round|tells? what|(is|are|was|were|be) told|` +
	`hence|thereby|lest|in vain|of old|receipts?|parcels?|lanes?|witness|heirs?|RunID|OpenRun|RetryIn|Discharge)\b`)

// permitted are the matches that remain, by file.
var permitted = map[string][]string{
	"scripts/private-pgbouncer": {"nobody"}, // a user of Unix
}

// Sentences in comments, messages and pages use the words of the glossary.
func TestBannedPhrases(t *testing.T) {
	t.Parallel()
	checked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata" && strings.Contains(name, "fuzz")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".sql", ".md", ".txt", ".yaml", ""}, filepath.Ext(name)) || name == "LICENSE" ||
			strings.HasSuffix(name, "words_test.go") {
			return nil
		}
		checked++
		for i, line := range strings.Split(read(t, name), "\n") {
			for _, phrase := range banned.FindAllString(line, -1) {
				if !slices.Contains(permitted[name], strings.ToLower(phrase)) {
					t.Errorf("%s:%d: %q", name, i+1, phrase)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 500 {
		t.Errorf("only %d files were checked", checked)
	}
}
