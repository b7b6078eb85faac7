package main

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"
)

// documented is the batch that docs/protocol.md shows in hexadecimal.
func documented(t *testing.T) []byte {
	page, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```hex\n")
	block, _, _ = strings.Cut(block, "```")
	digits := regexp.MustCompile(`(?m)^[0-9a-f]{4}|\s`).ReplaceAllString(block, "")
	data, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTakesBatchesOneByOne(t *testing.T) {
	data := documented(t)
	batch, rest, err := ParseBatch(append(data, data...))
	if err != nil {
		t.Fatal(err)
	}
	if batch.RecordCount != 1 || batch.NextOffset() != 1 || len(rest) != len(data) {
		t.Errorf("%d records up to offset %d, %d bytes left", batch.RecordCount, batch.NextOffset(), len(rest))
	}
}

func TestRefusesAnyChangedByte(t *testing.T) {
	data := documented(t)
	for at := range data {
		data[at] ^= 1
		if _, _, err := ParseBatch(data); err == nil {
			t.Errorf("byte %d was changed, and nobody noticed", at)
		}
		data[at] ^= 1
	}
}
