package main

import (
	"encoding/xml"
	"slices"
	"strings"
	"testing"
)

// drawing is the part of a chart that the tests check.
type drawing struct {
	Style  string `xml:"style"`
	Panels []struct {
		Texts []struct {
			Class string `xml:"class,attr"`
			Text  string `xml:",chardata"`
		} `xml:"text"`
		Bars []struct {
			Class string  `xml:"class,attr"`
			Width float64 `xml:"width,attr"`
		} `xml:"rect"`
	} `xml:"g"`
}

func draw(t *testing.T, r report) (d drawing) {
	t.Helper()
	if err := xml.Unmarshal([]byte(r.chart()), &d); err != nil {
		t.Fatalf("%v in\n%s", err, r.chart())
	}
	return d
}

func TestChartHasABarForEverySystemInProportion(t *testing.T) {
	t.Parallel()
	d := draw(t, exampleReport())
	if len(d.Panels) != 1 { // the steady state is the only measured rate
		t.Fatalf("%d panels, want 1", len(d.Panels))
	}
	var names, values, highlighted []string
	for _, text := range d.Panels[0].Texts {
		switch strings.Fields(text.Class)[0] {
		case "name":
			names = append(names, text.Text)
		case "value":
			values = append(values, text.Text)
		}
		if strings.Contains(text.Class, "own") {
			highlighted = append(highlighted, text.Text)
		}
	}
	if want := []string{"Holdfast", "Holdfast embedded", "other", "by hand"}; !slices.Equal(names, want) {
		t.Errorf("bars of %q, want %q", names, want)
	}
	if want := []string{"30,400", "15,500", "10,000", "60,800"}; !slices.Equal(values, want) {
		t.Errorf("values %q, want %q", values, want)
	}
	if want := []string{"Holdfast", "Holdfast embedded"}; !slices.Equal(highlighted, want) {
		t.Errorf("highlighted names: %q, want %q", highlighted, want)
	}
	widths := []float64{100, 51, 32.9, 200}
	for i, bar := range d.Panels[0].Bars {
		if bar.Width != widths[i] {
			t.Errorf("the bar of %s is %v wide, want %v", names[i], bar.Width, widths[i])
		}
		if ours := strings.Contains(bar.Class, "ours"); ours != (i < 2) {
			t.Errorf("the bar of %s has class %q", names[i], bar.Class)
		}
	}
}

func TestChartHasAPanelForEveryRate(t *testing.T) {
	t.Parallel()
	r := exampleReport()
	for _, measure := range []string{bulk, drain, singles16, singles256} {
		r.found.add(0, "Holdfast", measure, 1000)
	}
	var titles []string
	for _, panel := range draw(t, r).Panels {
		titles = append(titles, panel.Texts[0].Text)
		if panel.Texts[0].Text == bulk && panel.Texts[len(panel.Texts)-1].Text != "—" {
			t.Errorf("a rate that was not measured has the value %q", panel.Texts[len(panel.Texts)-1].Text)
		}
	}
	if !slices.Equal(titles, charted) {
		t.Errorf("panels of %q, want %q", titles, charted)
	}
}

func TestChartHasColorsForDarkMode(t *testing.T) {
	t.Parallel()
	light, dark, ok := strings.Cut(draw(t, exampleReport()).Style, "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("the style has no part for dark mode")
	}
	for _, class := range []string{".back {", ".head, .name, .value {", ".bar {", ".ours {"} {
		if !strings.Contains(light, class) || !strings.Contains(dark, class) {
			t.Errorf("%s does not have a color in both modes", class)
		}
	}
}

func TestChartEscapesNames(t *testing.T) {
	t.Parallel()
	r := exampleReport()
	r.systems[0].name = "<a & b>"
	r.found.add(0, "<a & b>", steady, 1)
	if got := draw(t, r).Panels[0].Texts[1].Text; got != "<a & b>" {
		t.Errorf("the name is %q", got)
	}
}
