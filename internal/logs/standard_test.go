package logs_test

import (
	"log"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast/internal/logs"
)

// A text of another package stays inside one line, whatever it contains.
func TestLinesOfOtherPackagesAreOneLine(t *testing.T) {
	t.Parallel()
	to, lines := test.NewNullLogger()
	other := log.New(logs.Lines(to), "", 0)
	other.Print("Unsolicited response\n{\"level\":\"info\",\"msg\":\"forged\"}\xff")
	other.Print(strings.Repeat("x", 20_000))
	entries := lines.AllEntries()
	if len(entries) != 2 || entries[0].Level != logrus.WarnLevel || entries[0].Data["text"] != "Unsolicited response\n{\"level\":\"info\",\"msg\":\"forged\"}�" || entries[1].Data["text"] != strings.Repeat("x", 16<<10)+"…" {
		t.Fatalf("the lines are %v", entries)
	}
	for _, formatter := range []logrus.Formatter{&logrus.JSONFormatter{}, &logrus.TextFormatter{DisableColors: true}} {
		to.SetFormatter(formatter)
		if text, err := entries[0].String(); err != nil || strings.Count(text, "\n") != 1 {
			t.Errorf("%q, %v", text, err)
		}
	}
}
