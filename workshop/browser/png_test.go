package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
)

// small returns a picture with its 256 most frequent colors, which is several times smaller. The other colors are shades
// of the edges of letters, and become the nearest of the 256.
func small(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	b := from.Bounds()
	pixels := make(map[color.Color]int)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			pixels[from.At(x, y)]++
		}
	}
	// Equal counts have an order, too, so that a page has the same picture each time.
	colors := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(pixels[b], pixels[a]), cmp.Compare(rgb(a), rgb(b)))
	})
	palette := color.Palette(colors[:min(len(colors), 256)])
	indexes := make(map[color.Color]uint8)
	for _, c := range colors {
		indexes[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(b, palette)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			to.SetColorIndex(x, y, indexes[from.At(x, y)])
		}
	}
	var text bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&text, to)
	return text.Bytes(), err
}

func rgb(c color.Color) uint32 {
	r, g, b, _ := c.RGBA()
	return r>>8<<16 | g>>8<<8 | b>>8
}
