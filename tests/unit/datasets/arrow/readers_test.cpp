#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/column_builder.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

/// Reads a text as a file of that ending.
ArrowDataset read(const std::string& ending, const std::string& text, const LoadOptions& options = {}) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / ("data." + ending), text);
  return ArrowDataset::load(folder / ("data." + ending), options);
}

std::string rows(const ArrowDataset& data) {
  std::string text;
  for (std::int64_t row = 0; row < data.num_rows(); ++row) text += data.row(row).value().to_json() + "\n";
  return text;
}

TEST(Csv, QuotesLineEndsAndTypes) {
  const auto data =
      read("csv", "\xEF\xBB\xBFid,name,score,ok\r\n1,\"a \"\"b\"\",\nc\",1.5,true\r\n\r\n2,,2,False\r\n");
  EXPECT_EQ(rows(data),
            "{\"id\": 1, \"name\": \"a \\\"b\\\",\\nc\", \"score\": 1.5, \"ok\": true}\n"
            "{\"id\": 2, \"name\": null, \"score\": 2.0, \"ok\": false}\n");
}

TEST(Csv, OptionsNameDelimiterColumnsAndTypes) {
  LoadOptions options;
  options.csv = {.delimiter = ';', .header = false, .column_names = {"code", "value"}};
  options.features = Features(
      {{"code", Feature(DataType(TypeKind::utf8))}, {"value", Feature(DataType(TypeKind::float32))}});
  EXPECT_EQ(rows(read("csv", "001;2\n002;3\n", options)),
            "{\"code\": \"001\", \"value\": 2.0}\n{\"code\": \"002\", \"value\": 3.0}\n");
  EXPECT_EQ(rows(read("tsv", "a\tb\n1\t2\n")), "{\"a\": 1, \"b\": 2}\n");
}

TEST(Csv, BlanksAroundNumbersAsInPandas) {
  const auto kind = [](const std::string& cells) {
    return read("csv", "a,b\n" + cells).features()["a"].type().text();
  };
  EXPECT_EQ(rows(read("csv", "a,b\n\"1\n\",1\n\v2\f,1\n")), "{\"a\": 1, \"b\": 1}\n{\"a\": 2, \"b\": 1}\n");
  EXPECT_EQ(kind("\"1.5\r\n\",1\n"), "float64");
  EXPECT_EQ(kind("inf,1\n"), "float64");
  EXPECT_EQ(kind(" inf,1\n"), "string");
  EXPECT_EQ(kind("1,1\nnan ,1\n"), "string");
}

TEST(Csv, CellsOfGivenTypesAsInPandas) {
  LoadOptions options;
  options.features = Features({{"flag", Feature(DataType(TypeKind::boolean))},
                               {"number", Feature(DataType(TypeKind::int64))},
                               {"label", Feature::class_label({"no", "yes"})}});
  EXPECT_EQ(rows(read("csv", "flag,number,label\n1, 7,yes \n0.0,True,1\nfalse,false, no\n", options)),
            "{\"flag\": true, \"number\": 7, \"label\": 1}\n"
            "{\"flag\": false, \"number\": 1, \"label\": 1}\n"
            "{\"flag\": false, \"number\": 0, \"label\": 0}\n");
  EXPECT_THROWS((read("csv", "flag,number,label\n2,1,no\n", options)), DataError, "'flag'", "\"2\"", "bool");
}

TEST(Csv, ErrorsNameTheRow) {
  EXPECT_THROWS((read("csv", "a,b\n1,2\n3,4,5\n")), DataError, "row 1 (line 3)", "3 cells", "2 columns");
  EXPECT_THROWS((read("csv", "a\n\"x\n")), DataError, "line 2", "not closed");
  EXPECT_THROWS((read("csv", "a\n\"x\"y\n")), DataError, "closing quote");
  EXPECT_THROWS((read("csv", "a\n\xFF\n")), DataError, "column 'a'", "UTF-8");
  EXPECT_THROWS((read("csv", "")), DataError, "empty");
  LoadOptions options;
  options.features = Features({{"a", Feature(DataType(TypeKind::int64))}});
  EXPECT_THROWS((read("csv", "a\n1\nx\n", options)), DataError, "row 1", "'a'", "\"x\"", "int64");
}

TEST(JsonLines, TypesAreFoundOverTheWholeFile) {
  const auto data = read(
      "jsonl",
      "{\"a\": 1, \"b\": [{\"c\": null}]}\n\n{\"a\": 2.5, \"d\": \"x\"}\n{\"b\": [{\"c\": true}, null]}\n");
  EXPECT_EQ(data.features()["a"].type().text(), "float64");
  EXPECT_EQ(data.features()["b"].type().text(), "list<struct<c: bool>>");
  EXPECT_EQ(rows(data),
            "{\"a\": 1.0, \"b\": [{\"c\": null}], \"d\": null}\n{\"a\": 2.5, \"b\": null, \"d\": \"x\"}\n"
            "{\"a\": null, \"b\": [{\"c\": true}, null], \"d\": null}\n");
  EXPECT_EQ(rows(read("json", "[{\"a\": 1}, {\"a\": 2}]")), "{\"a\": 1}\n{\"a\": 2}\n");
  EXPECT_EQ(rows(read("json", "\xEF\xBB\xBF[{\"a\": 1}]")), "{\"a\": 1}\n");
  EXPECT_EQ(rows(read("json", "{\"a\": {\"b\": 1}\r\n,\n\"c\": \"}\"}\n")),
            "{\"a\": {\"b\": 1}, \"c\": \"}\"}\n");
}

TEST(JsonLines, NumbersBecomeTextAsInCasts) {
  LoadOptions options;
  options.features = Features({{"a", Feature(DataType(TypeKind::utf8))}});
  EXPECT_EQ(rows(read("jsonl", "{\"a\": 3.0}\n{\"a\": 1e15}\n{\"a\": 7}\n", options)),
            "{\"a\": \"3\"}\n{\"a\": \"1e+15\"}\n{\"a\": \"7\"}\n");
}

TEST(JsonLines, ErrorsNameTheLine) {
  EXPECT_THROWS((read("jsonl", "{\"a\": 1}\n{\"a\": \"x\"}\n")), DataError, "line 2", "'a'", "string",
                "int64");
  EXPECT_THROWS((read("jsonl", "{\"a\": 1}\n{\"a\": \n")), DataError, "line 2", "not valid JSON");
  EXPECT_THROWS((read("jsonl", "{\"a\": 1, \"a\": 2}\n")), DataError, "twice");
  EXPECT_THROWS((read("jsonl", "3\n")), DataError, "line 1", "object");
  // Arrow's parser reads memory that is not its own.
  EXPECT_THROWS((read("jsonl", "null\n{\"a\": 1}\n")), DataError, "line 1", "object");
  EXPECT_THROWS((read("jsonl", "{\"a\": 1}\nnull\n")), DataError, "line 2", "object");
  EXPECT_THROWS((read("jsonl", "{\"a\": 1} null\n")), DataError, "line 1", "not valid JSON");
  EXPECT_EQ(rows(read("jsonl", "{\"a\": \"}\\\"{\"}\n")), "{\"a\": \"}\\\"{\"}\n");
  EXPECT_THROWS((read("jsonl", std::string(100000, '['))), DataError, "levels deep");
  EXPECT_THROWS((read("jsonl", "")), DataError, "no rows");
}

TEST(Csv, IntegersThatADoubleCannotHold) {
  const auto kind = [](const std::string& cells) {
    return read("csv", "b,a\n" + cells).features()["a"].type().text();
  };
  EXPECT_EQ(kind("1,18446744073709551615\n"), "uint64");
  EXPECT_EQ(kind("1,18446744073709551615\n1,-1\n"), "string");
  EXPECT_EQ(kind("1,18446744073709551615\n1,\n"), "string");
  EXPECT_EQ(kind("1,18446744073709551616\n"), "string");
  EXPECT_EQ(kind("1,18446744073709551615\n1,0.5\n"), "float64");
  const testing::TemporaryFolder folder;
  ArrowDataset::from_columns({{"a", make_column<std::uint64_t>({~std::uint64_t{0}, 1})}})
      .to_csv(folder / "a.csv");
  EXPECT_EQ(ArrowDataset::load(folder / "a.csv").column<std::uint64_t>("a")[0], ~std::uint64_t{0});
  // The types of the first rows do not hold for all.
  std::string later = "a\n";
  for (int row = 0; row < 5000; ++row) later += "1\n";
  EXPECT_EQ(read("csv", later + "18446744073709551615\n").column<std::uint64_t>("a")[5000],
            ~std::uint64_t{0});
}

TEST(Write, LinesOfBlanksAreRead) {
  const testing::TemporaryFolder folder;
  ArrowDataset::from_columns({{"a", make_column<std::string>({" ", "\t", "", "x"})}})
      .to_csv(folder / "a.csv");
  EXPECT_EQ(testing::read_bytes(folder / "a.csv"), "a\n\" \"\n\"\t\"\n\"\"\nx\n");
  EXPECT_EQ(ArrowDataset::load(folder / "a.csv").num_rows(), 4);
}

TEST(Write, TimesAsTextAndBytesAsBase64) {
  const testing::TemporaryFolder folder;
  const auto times = ArrowDataset::from_columns({{"t", make_column<std::int64_t>({1577923200})}})
                         .cast_column("t", Feature(DataType::temporal(TypeKind::timestamp, "s")));
  ColumnBuilder bytes{DataType(TypeKind::binary)};
  bytes.append(std::string("\xFF\0", 2));
  const auto data = times.add_column("b", bytes.finish());
  data.to_csv(folder / "a.csv");
  EXPECT_EQ(testing::read_bytes(folder / "a.csv"), "t,b\n2020-01-02 00:00:00,/wA=\n");
  data.to_json(folder / "a.jsonl");
  EXPECT_EQ(rows(ArrowDataset::load(folder / "a.jsonl")),
            "{\"t\": \"2020-01-02 00:00:00\", \"b\": \"/wA=\"}\n");
}

TEST(Load, FilesMayLackRowsColumnsAndTypes) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a" / "b");
  testing::write_bytes(folder / "1.jsonl", "{\"x\": 1.5, \"y\": null}\n");
  testing::write_bytes(folder / "2.jsonl", "");
  testing::write_bytes(folder / "a" / "b" / "3.jsonl", "{\"x\": 2, \"y\": [1]}\n");
  testing::write_bytes(folder / "a" / "4.jsonl", "{\"y\": []}\n");
  EXPECT_EQ(rows(ArrowDataset::load(folder / "**" / "*.jsonl")),
            "{\"x\": 1.5, \"y\": null}\n{\"x\": null, \"y\": []}\n{\"x\": 2.0, \"y\": [1]}\n");
}

/// Alone such a column is of floating numbers, as in pandas.
TEST(Load, ColumnsOfOnlyNullsTakeTheTypeOfOtherFiles) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "1.csv", "a,b\n1,\n2,\n");
  testing::write_bytes(folder / "2.csv", "a,b\n3,x\n");
  testing::write_bytes(folder / "3.csv", "a,b\n,True\n");
  const auto load = [&](const char* first, const char* second) {
    return ArrowDataset::load(std::vector<std::filesystem::path>{folder / first, folder / second});
  };
  EXPECT_EQ(rows(load("1.csv", "2.csv")),
            "{\"a\": 1, \"b\": null}\n{\"a\": 2, \"b\": null}\n{\"a\": 3, \"b\": \"x\"}\n");
  EXPECT_EQ(rows(load("2.csv", "1.csv")),
            "{\"a\": 3, \"b\": \"x\"}\n{\"a\": 1, \"b\": null}\n{\"a\": 2, \"b\": null}\n");
  EXPECT_EQ(load("1.csv", "3.csv").features()["b"].type().text(), "bool");
  EXPECT_THROWS((load("2.csv", "3.csv")), UsageError, "3.csv", "'b'", "bool", "string");
}

TEST(Csv, WhatIsNoNumberIsReadBack) {
  const testing::TemporaryFolder folder;
  const std::vector<double> numbers = {1.5, NAN, -INFINITY};
  ArrowDataset::from_columns({{"x", make_column(numbers)}}).to_csv(folder / "a.csv");
  const auto read = ArrowDataset::load(folder / "a.csv").column<double>("x");
  EXPECT_TRUE(std::isnan(read[1]));
  EXPECT_EQ(read[2], -INFINITY);
}

TEST(Load, FilesThatDoNotFitAreNamed) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "a-1.csv", "a\nx\n");
  testing::write_bytes(folder / "a-2.csv", "a\n1\n");
  EXPECT_THROWS((ArrowDataset::load(folder / "a-*.csv")), UsageError, "a-2.csv", "'a'", "int64", "string");
}

TEST(JsonLines, WhatIsNoNumberIsWrittenAsNull) {
  const testing::TemporaryFolder folder;
  const std::vector<double> numbers = {1.5, NAN, -INFINITY};
  ArrowDataset::from_columns(
      {{"x", make_column(numbers)}, {"y", make_column(std::vector<std::vector<double>>{{}, {NAN, 2}, {}})}})
      .to_json(folder / "a.jsonl");
  EXPECT_EQ(rows(ArrowDataset::load(folder / "a.jsonl")),
            "{\"x\": 1.5, \"y\": []}\n{\"x\": null, \"y\": [null, 2.0]}\n{\"x\": null, \"y\": []}\n");
}

TEST(Text, ARowALine) {
  EXPECT_EQ(rows(read("txt", "one\r\n\ntwo")),
            "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two\"}\n");
  EXPECT_EQ(rows(read("txt", "one\r\rtwo\r")),
            "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two\"}\n");
}

/// Parquet has neither seconds nor date64; the features say what was written.
TEST(Parquet, TypesThatItHasNotAreReadBack) {
  const testing::TemporaryFolder folder;
  const auto numbers =
      ArrowDataset::from_columns({{"time", make_column<std::int64_t>({5})},
                                  {"days", make_column<std::vector<std::int64_t>>({{86400000}})}});
  const auto days = DataType::list(DataType(TypeKind::date64));
  const auto data = numbers.cast_column("time", Feature(DataType::temporal(TypeKind::timestamp, "s")))
                        .cast_column("days", Feature(days));
  data.to_parquet(folder / "a.parquet");
  const auto read = ArrowDataset::load(folder / "a.parquet");
  EXPECT_EQ(read.features(), data.features());
  EXPECT_EQ(rows(read), "{\"time\": 5, \"days\": [86400000]}\n");
}

TEST(Parquet, PiecesAreOfBoundedSize) {
  const testing::TemporaryFolder folder;
  using Texts = std::vector<std::vector<std::string>>;
  Texts texts;
  for (int row = 0; row < 300; ++row) texts.push_back({std::to_string(row) + std::string(256 << 10, 'a')});
  ArrowDataset::from_columns({{"a", make_column(texts)}}).to_parquet(folder / "a.parquet", 300);
  const auto read = ArrowDataset::load(folder / "a.parquet");
  ASSERT_EQ(read.num_rows(), 300);
  EXPECT_EQ(read.column("a").value(299).list()[0].text().size(), (256U << 10) + 3);
  const auto& data = *read.column("a").data();
  for (std::size_t chunk = 0; chunk < data.chunks().size(); ++chunk)
    EXPECT_LE(data.start(chunk + 1) - data.start(chunk), 130) << "of 256 kB each";
}

TEST(Load, OnlyTheColumnsThatAreWanted) {
  const testing::TemporaryFolder folder;
  read("csv", "a,b,c\n1,2,x\n3,4,y\n").to_parquet(folder / "a.parquet");
  LoadOptions options;
  options.columns = {"c", "a"};
  EXPECT_EQ(rows(ArrowDataset::load(folder / "a.parquet", options)),
            "{\"c\": \"x\", \"a\": 1}\n{\"c\": \"y\", \"a\": 3}\n");
  EXPECT_EQ(rows(read("csv", "a,b,c\n1,2,x\n", options)), "{\"c\": \"x\", \"a\": 1}\n");
  const Feature text(DataType(TypeKind::utf8));
  options.features = Features({{"a", text}, {"b", text}, {"c", text}});
  EXPECT_EQ(rows(ArrowDataset::load(folder / "a.parquet", options)),
            "{\"c\": \"x\", \"a\": \"1\"}\n{\"c\": \"y\", \"a\": \"3\"}\n");
  options.columns = {"d"};
  EXPECT_THROWS((ArrowDataset::load(folder / "a.parquet", options)), UsageError, "'d'");
}

TEST(Load, UnknownAndMissingFiles) {
  EXPECT_THROWS((read("bin", "????")), DataError, "LoadOptions::format");
  EXPECT_THROWS((ArrowDataset::load("/nowhere/x.arrow")), DataError, "/nowhere/x.arrow");
  EXPECT_THROWS((read("arrow", "")), DataError, "empty");
  EXPECT_THROWS((read("arrow", "hello, this is not an arrow file")), DataError, "data.arrow");
  EXPECT_THROWS((read("parquet", "PAR1 and then nothing PAR1")), DataError, "data.parquet", "Parquet");
}

TEST(Write, FoldersThatCannotBeWrittenStayAsTheyWere) {
  const auto data = read("csv", "a\n1\n");
  EXPECT_THROW(data.to_json("/proc/nowhere/x.json"), Error);
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "file", "");
  EXPECT_THROW(data.save_to_disk(folder / "file" / "below"), Error);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"file"});
}

TEST(Csv, NamesThatAreNotTextAreRefusedByFileAndColumn) {
  EXPECT_THROWS((read("csv", "a,caf\xe9\n1,2\n")), DataError, "data.csv", "line 1", "column 2 ('caf\\xe9')",
                "UTF-8", "iconv");
  EXPECT_THROWS((read("csv", std::string("\xff\xfe"
                                         "a\0,\0b\0\n\0",
                                         10))),
                DataError, "data.csv", "UTF-16");
  EXPECT_THROWS((read("csv", std::string("\0a\0,\0b\0\n", 8))), DataError, "data.csv", "zero byte");
  LoadOptions options;
  options.csv.column_names = {"a", "b"};
  EXPECT_EQ(rows(read("csv", "a,caf\xe9\n1,2\n", options)), "{\"a\": 1, \"b\": 2}\n");
  options.csv.column_names = {"a", "caf\xe9"};
  EXPECT_THROWS((read("csv", "a,b\n1,2\n", options)), DataError, "'caf\\xe9'", "not UTF-8");
}

/// As in GLUE's files.
TEST(Csv, QuotesMayBeOrdinaryCharacters) {
  const std::string text = "id\tsentence\n1\t\"to be\n2\tor \"\"not\"\" \" to be\"\n";
  EXPECT_THROWS((read("tsv", text)), DataError, "line", "CsvOptions::quote", "kNoQuotes");
  LoadOptions options;
  options.csv.quote = CsvOptions::kNoQuotes;
  EXPECT_EQ(rows(read("tsv", text, options)),
            "{\"id\": 1, \"sentence\": \"\\\"to be\"}\n"
            "{\"id\": 2, \"sentence\": \"or \\\"\\\"not\\\"\\\" \\\" to be\\\"\"}\n");
}

/// The file with other bytes of the same number at each place of `from`.
void replace_in(const std::filesystem::path& file, std::string_view from, std::string_view to) {
  auto bytes = testing::read_bytes(file);
  ASSERT_NE(bytes.find(from), std::string::npos) << from;
  for (auto at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + to.size()))
    bytes.replace(at, from.size(), to);
  testing::write_bytes(file, bytes);
}

TEST(Names, OfAnyFormatAreUtf8) {
  const testing::TemporaryFolder folder;
  const auto data = read("csv", "cafX,b\ncafY,1\nx,2\n");
  data.to_arrow(folder / "a.arrow");
  data.to_parquet(folder / "a.parquet");
  data.to_arrow(folder / "cells.arrow");
  replace_in(folder / "a.arrow", "cafX", "caf\xe9");
  replace_in(folder / "a.parquet", "cafX", "caf\xe9");
  replace_in(folder / "cells.arrow", "cafY", "caf\xe9");
  EXPECT_THROWS(ArrowDataset::load(folder / "a.arrow"), DataError, "a.arrow", "'caf\\xe9'", "not UTF-8");
  EXPECT_THROWS(ArrowDataset::load(folder / "a.parquet"), DataError, "a.parquet", "'caf\\xe9'", "not UTF-8");
  const auto cells = ArrowDataset::load(folder / "cells.arrow");
  EXPECT_THROWS(cells.class_encode_column("cafX"), DataError, "cells.arrow", "'cafX'", "row 0", "'caf\\xe9'");
  EXPECT_EQ(cells.row(0).value().to_json(), "{\"cafX\": \"caf\\\\xe9\", \"b\": 1}");
  EXPECT_EQ(cells.unique("cafX").size(), 2U);
  EXPECT_THROWS(data.rename_column("b", "\xff"), UsageError, "'\\xff'", "not UTF-8");
  EXPECT_THROWS(data.with_split("\xff"), UsageError, "'\\xff'");
  EXPECT_THROWS(Feature::class_label({"\xff"}), UsageError, "'\\xff'");
  EXPECT_THROWS(DataType::struct_({{"\xff", DataType(TypeKind::int8)}}), UsageError, "'\\xff'");
  EXPECT_THROWS(DataType::temporal(TypeKind::timestamp, "s", "\xff"), UsageError, "'\\xff'");
  EXPECT_THROWS(Feature::other("{", DataType(TypeKind::int8)), UsageError, "not JSON");
}

/// What other programs write with the features of the file that they have read.
TEST(Features, ThatAreStaleDoNotCount) {
  const testing::TemporaryFolder folder;
  const auto data = read("csv", "label,score,gone\nyes,1,2\nno,2,3\n").class_encode_column("label");
  data.to_arrow(folder / "a.arrow");
  data.to_parquet(folder / "a.parquet");
  // Their Arrow types stay.
  for (const char* file : {"a.arrow", "a.parquet"}) {
    replace_in(folder / file, R"("score":{"dtype":"int64")", R"("score":{"dtype":"int32")");
    replace_in(folder / file, R"("gone":{"dtype":"int64","_type":"Value"})",
               R"("more":{"dtype":"int64","_type":"Other"})");
    const auto read = ArrowDataset::load(folder / file);
    EXPECT_EQ(read.features()["label"], data.features()["label"]) << file;
    EXPECT_EQ(read.features()["score"].type().text(), "int64") << file;
    EXPECT_EQ(read.features()["gone"].type().text(), "int64") << file;
    EXPECT_EQ(rows(read), rows(data)) << file;
  }
}

}  // namespace
}  // namespace lockstep
